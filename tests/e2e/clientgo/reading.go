package main

import (
	"context"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/pager"
)

const many, page = 25, 10

// pages: a list comes in pages that show one state, whatever changes meanwhile, and say how many objects follow.
func pages(ctx context.Context, s *session) {
	leases := s.typed().CoordinationV1().Leases(s.namespace)
	for i := range many {
		_, err := leases.Create(ctx, lease(fmt.Sprintf("lease-%02d", i)), metav1.CreateOptions{})
		must(err, "creating a lease")
	}
	first, err := leases.List(ctx, metav1.ListOptions{Limit: page})
	must(err, "the first page")
	expect(len(first.Items) == page && first.Continue != "", "the first page has %d items", len(first.Items))
	expect(first.RemainingItemCount != nil && *first.RemainingItemCount == many-page, "%v remain", first.RemainingItemCount)
	must(leases.Delete(ctx, "lease-24", metav1.DeleteOptions{}), "deleting a lease")

	second, err := leases.List(ctx, metav1.ListOptions{Limit: 100, Continue: first.Continue})
	must(err, "the rest")
	expect(len(second.Items) == many-page, "the rest has %d items", len(second.Items))
	expect(second.ResourceVersion == first.ResourceVersion, "pages of %s and %s", first.ResourceVersion, second.ResourceVersion)
	expect(second.Continue == "" && second.RemainingItemCount == nil, "the last page goes on: %v", second.ListMeta)

	names := map[string]bool{}
	each := pager.New(pager.SimplePageFunc(func(options metav1.ListOptions) (runtime.Object, error) {
		return leases.List(ctx, options)
	}))
	each.PageSize = page
	before := len(s.wire.about("GET", "/leases"))
	must(each.EachListItem(ctx, metav1.ListOptions{}, func(object runtime.Object) error {
		names[object.(metav1.Object).GetName()] = true
		return nil
	}), "the pager")
	expect(len(names) == many-1, "the pager found %d objects", len(names))
	asked := s.wire.about("GET", "/leases")
	expect(len(asked)-before == 3, "the pager asked %d times", len(asked)-before)
	for _, one := range asked {
		expect(one.answered == protobufMedia, "a list was answered in %q", one.answered)
	}
	exact, err := leases.List(ctx, metav1.ListOptions{
		ResourceVersion: first.ResourceVersion, ResourceVersionMatch: metav1.ResourceVersionMatchExact,
	})
	must(err, "the list at a revision")
	expect(len(exact.Items) == many, "at revision %s there were %d", first.ResourceVersion, len(exact.Items))
}

// metadataOnly: the metadata client, which asks for Protobuf, works for kinds that have no Protobuf themselves.
func metadataOnly(ctx context.Context, s *session) {
	client := s.metadata()
	_, err := s.custom().Resource(networks).Namespace(s.namespace).Create(ctx, network("blue", map[string]any{}), metav1.CreateOptions{})
	must(err, "creating a network")
	_, err = s.typed().CoordinationV1().Leases(s.namespace).Create(ctx, lease("blue"), metav1.CreateOptions{})
	must(err, "creating a lease")
	for _, resource := range []schema.GroupVersionResource{
		networks, {Group: "coordination.k8s.io", Version: "v1", Resource: "leases"},
	} {
		objects := client.Resource(resource).Namespace(s.namespace)
		one, err := objects.Get(ctx, "blue", metav1.GetOptions{})
		must(err, "the metadata of "+resource.Resource)
		expect(one.Labels["made-by"] == "clientgo" && one.UID != "", "metadata is %v", one.ObjectMeta)
		listed, err := objects.List(ctx, metav1.ListOptions{})
		must(err, "the list of "+resource.Resource)
		expect(len(listed.Items) == 1 && listed.ResourceVersion != "", "the list is %v", listed)
		watching, err := objects.Watch(ctx, metav1.ListOptions{ResourceVersion: listed.ResourceVersion})
		must(err, "the watch of "+resource.Resource)
		_, err = objects.Patch(ctx, "blue", "application/merge-patch+json", []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{})
		must(err, "the patch of "+resource.Resource)
		must(objects.Delete(ctx, "blue", metav1.DeleteOptions{}), "the deletion of "+resource.Resource)
		for _, wanted := range []watch.EventType{watch.Modified, watch.Deleted} {
			select {
			case event := <-watching.ResultChan():
				found, ok := event.Object.(*metav1.PartialObjectMetadata)
				expect(ok && event.Type == wanted && found.Labels["a"] == "b", "%s %v", event.Type, event.Object)
			case <-ctx.Done():
				fail("no %s event", wanted)
			}
		}
		watching.Stop()
		for _, suffix := range []string{"/" + resource.Resource, "/" + resource.Resource + "/blue"} {
			for _, one := range s.wire.about("GET", suffix) {
				expect(strings.HasPrefix(one.answered, protobufMedia), "%s was answered in %q", suffix, one.answered)
			}
		}
	}
}
