package main

import (
	"context"
	"fmt"
	"strings"
	"sync"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
)

// journal is what an informer's handlers were called with.
type journal struct {
	mu    sync.Mutex
	lines []string
}

func (j *journal) handler() cache.ResourceEventHandler {
	note := func(what string, object any) {
		if gone, ok := object.(cache.DeletedFinalStateUnknown); ok {
			object = gone.Obj
		}
		j.mu.Lock()
		defer j.mu.Unlock()
		j.lines = append(j.lines, what+" "+object.(metav1.Object).GetName())
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { note("add", object) },
		UpdateFunc: func(_, object any) { note("update", object) },
		DeleteFunc: func(object any) { note("delete", object) },
	}
}

func (j *journal) has(line string) func() bool {
	return func() bool {
		j.mu.Lock()
		defer j.mu.Unlock()
		for _, found := range j.lines {
			if found == line {
				return true
			}
		}
		return false
	}
}

func lease(name string) *coordinationv1.Lease {
	holder, seconds := "somebody", int32(30)
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"made-by": "clientgo"}},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds},
	}
}

func network(name string, spec map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "netloom.dev/v1alpha1", "kind": "Network",
		"metadata": map[string]any{"name": name, "labels": map[string]any{"made-by": "clientgo"}}, "spec": spec,
	}}
}

// watchList sees that the informers of a resource began by a watch with initial events, and never listed. Kubernetes on
// an etcd older than 3.4.31 refuses such watches of what it caches; client-go falls back to a list there.
func watchList(s *session, resource, media string) {
	watched := false
	for _, one := range s.wire.about("GET", "/"+resource) {
		if !strings.Contains(one.query, "watch=true") {
			expect(s.lists, "%s were listed: %s", resource, one.query)
			continue
		}
		expect(one.code == 200 && one.answered == media, "a watch was answered with %d in %q", one.code, one.answered)
		watched = watched || strings.Contains(one.query, "sendInitialEvents=true")
	}
	expect(watched, "%s were not watched with initial events", resource)
}

// typedInformers: informers of built-in kinds begin by a watch, in Protobuf, and hear of what changes.
func typedInformers(ctx context.Context, s *session) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	client := s.typed()
	leases := client.CoordinationV1().Leases(s.namespace)
	for i := range 3 {
		_, err := leases.Create(ctx, lease(fmt.Sprintf("before-%d", i)), metav1.CreateOptions{})
		must(err, "creating a lease")
	}
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(s.namespace))
	ofLeases, ofEvents := factory.Coordination().V1().Leases(), factory.Core().V1().Events()
	seen, events := &journal{}, &journal{}
	_, err := ofLeases.Informer().AddEventHandler(seen.handler())
	must(err, "a handler of leases")
	_, err = ofEvents.Informer().AddEventHandler(events.handler())
	must(err, "a handler of events")
	factory.Start(ctx.Done())
	for kind, synced := range factory.WaitForCacheSync(ctx.Done()) {
		expect(synced, "the informer of %s did not sync", kind)
	}
	found, err := ofLeases.Lister().Leases(s.namespace).List(labels.Everything())
	must(err, "the lister")
	expect(len(found) == 3, "the cache has %d leases", len(found))
	expect(*found[0].Spec.HolderIdentity == "somebody", "the holder is %q", *found[0].Spec.HolderIdentity)
	expect(!found[0].CreationTimestamp.IsZero() && len(found[0].ManagedFields) == 1, "metadata is %v", found[0].ObjectMeta)

	made, err := leases.Create(ctx, lease("after"), metav1.CreateOptions{})
	must(err, "creating a lease")
	until(ctx, "add", seen.has("add after"))
	other := "another"
	made.Spec.HolderIdentity = &other
	_, err = leases.Update(ctx, made, metav1.UpdateOptions{})
	must(err, "updating a lease")
	until(ctx, "update", seen.has("update after"))
	must(leases.Delete(ctx, "after", metav1.DeleteOptions{}), "deleting a lease")
	until(ctx, "delete", seen.has("delete after"))

	_, err = client.CoreV1().Events(s.namespace).Create(ctx, &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Name: "happened"},
		InvolvedObject: corev1.ObjectReference{Kind: "Lease", Namespace: s.namespace, Name: "after"},
		Reason:         "Tried", Message: "it was tried", Type: corev1.EventTypeNormal,
	}, metav1.CreateOptions{})
	must(err, "creating an event")
	until(ctx, "an event", events.has("add happened"))
	watchList(s, "leases", protobufMedia+";stream=watch")
	watchList(s, "events", protobufMedia+";stream=watch")
}

// customInformers: the same of a kind of Netloom, in JSON.
func customInformers(ctx context.Context, s *session) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	client := s.custom().Resource(networks).Namespace(s.namespace)
	_, err := client.Create(ctx, network("before", map[string]any{}), metav1.CreateOptions{})
	must(err, "creating a network")
	factory := dynamicinformer.NewFilteredDynamicSharedInformerFactory(s.custom(), 0, s.namespace, nil)
	informer := factory.ForResource(networks)
	seen := &journal{}
	_, err = informer.Informer().AddEventHandler(seen.handler())
	must(err, "a handler of networks")
	factory.Start(ctx.Done())
	for kind, synced := range factory.WaitForCacheSync(ctx.Done()) {
		expect(synced, "the informer of %s did not sync", kind)
	}
	expect(len(informer.Informer().GetStore().List()) == 1, "the cache has %v", informer.Informer().GetStore().ListKeys())
	_, err = client.Create(ctx, network("after", map[string]any{}), metav1.CreateOptions{})
	must(err, "creating a network")
	until(ctx, "add", seen.has("add after"))
	must(client.Delete(ctx, "after", metav1.DeleteOptions{}), "deleting a network")
	until(ctx, "delete", seen.has("delete after"))
	watchList(s, "networks", "application/json")
}
