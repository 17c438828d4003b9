package main

import (
	"context"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	applycoordinationv1 "k8s.io/client-go/applyconfigurations/coordination/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// apply: server-side apply of a built-in kind and of one of Netloom's; who owns a field is asked before it changes.
func apply(ctx context.Context, s *session) {
	leases := s.typed().CoordinationV1().Leases(s.namespace)
	configuration := func(holder string) *applycoordinationv1.LeaseApplyConfiguration {
		return applycoordinationv1.Lease("applied", s.namespace).
			WithLabels(map[string]string{"by": holder}).
			WithSpec(applycoordinationv1.LeaseSpec().WithHolderIdentity(holder))
	}
	made, err := leases.Apply(ctx, configuration("one"), metav1.ApplyOptions{FieldManager: "one"})
	must(err, "applying a lease")
	expect(*made.Spec.HolderIdentity == "one", "the holder is %q", *made.Spec.HolderIdentity)
	expect(len(made.ManagedFields) == 1 && made.ManagedFields[0].Operation == metav1.ManagedFieldsOperationApply, "managed: %v", made.ManagedFields)
	fields := string(made.ManagedFields[0].FieldsV1.Raw)
	expect(strings.Contains(fields, `"f:holderIdentity":{}`), "managed: %s", fields)
	_, err = leases.Apply(ctx, configuration("two"), metav1.ApplyOptions{FieldManager: "two"})
	expect(apierrors.IsConflict(err), "applying over another manager: %v", err)
	expect(apierrors.HasStatusCause(err, metav1.CauseTypeFieldManagerConflict), "without a cause: %v", err)
	forced, err := leases.Apply(ctx, configuration("two"), metav1.ApplyOptions{FieldManager: "two", Force: true})
	must(err, "applying with force")
	expect(*forced.Spec.HolderIdentity == "two" && forced.Labels["by"] == "two", "forced: %v", forced)
	extracted, err := applycoordinationv1.ExtractLease(forced, "two")
	must(err, "extracting what a manager applied")
	expect(*extracted.Spec.HolderIdentity == "two", "extracted: %v", extracted)

	client := s.custom().Resource(networks).Namespace(s.namespace)
	blue, err := client.Apply(ctx, "applied", network("applied", map[string]any{"mtu": int64(1400)}), metav1.ApplyOptions{FieldManager: "one"})
	must(err, "applying a network")
	expect(len(blue.GetManagedFields()) == 1, "managed: %v", blue.GetManagedFields())
	_, err = client.Apply(ctx, "applied", network("applied", map[string]any{"mtu": int64(1300)}), metav1.ApplyOptions{FieldManager: "two"})
	expect(apierrors.IsConflict(err), "applying over another manager: %v", err)
}

// typedErrors: what goes wrong is known by the functions of apimachinery.
func typedErrors(ctx context.Context, s *session) {
	client := s.typed()
	leases := client.CoordinationV1().Leases(s.namespace)
	_, err := leases.Get(ctx, "missing", metav1.GetOptions{})
	expect(apierrors.IsNotFound(err), "a lease that is missing: %v", err)
	expect(details(err).Name == "missing" && details(err).Kind == "leases", "about %v", details(err))
	expect(strings.HasPrefix(s.wire.about("GET", "/leases/missing")[0].answered, protobufMedia), "the error was not Protobuf")
	made, err := leases.Create(ctx, lease("once"), metav1.CreateOptions{})
	must(err, "creating a lease")
	_, err = leases.Create(ctx, lease("once"), metav1.CreateOptions{})
	expect(apierrors.IsAlreadyExists(err), "a lease that is there: %v", err)
	_, err = leases.Update(ctx, made.DeepCopy(), metav1.UpdateOptions{})
	must(err, "updating without a change")
	changed := made.DeepCopy()
	changed.Labels = map[string]string{"a": "b"}
	_, err = leases.Update(ctx, changed, metav1.UpdateOptions{})
	must(err, "updating a lease")
	changed.Labels = map[string]string{"c": "d"} // Of the revision before.
	_, err = leases.Update(ctx, changed, metav1.UpdateOptions{})
	expect(apierrors.IsConflict(err), "a stale update: %v", err)

	wrong := lease("wrong")
	zero := int32(0)
	wrong.Spec.LeaseDurationSeconds = &zero
	_, err = leases.Create(ctx, wrong, metav1.CreateOptions{})
	expect(apierrors.IsInvalid(err), "a lease of no duration: %v", err)
	expect(caused(err, "spec.leaseDurationSeconds"), "causes: %v", details(err).Causes)
	custom := s.custom().Resource(networks).Namespace(s.namespace)
	_, err = custom.Create(ctx, network("wrong", map[string]any{"vni": int64(0)}), metav1.CreateOptions{})
	expect(apierrors.IsInvalid(err) && caused(err, "spec.vni"), "a network without a number: %v", err)
	_, err = custom.Get(ctx, "missing", metav1.GetOptions{})
	expect(apierrors.IsNotFound(err) && details(err).Group == "netloom.dev", "a network that is missing: %v", err)

	limited, err := clientcmd.BuildConfigFromFlags("", s.limited)
	must(err, "the other kubeconfig")
	_, err = kubernetes.NewForConfigOrDie(limited).CoordinationV1().Leases(s.namespace).List(ctx, metav1.ListOptions{})
	expect(apierrors.IsForbidden(err), "a user without rights: %v", err)
	stranger := rest.AnonymousClientConfig(s.config)
	stranger.BearerToken = "of-nobody"
	_, err = kubernetes.NewForConfigOrDie(stranger).CoordinationV1().Leases(s.namespace).List(ctx, metav1.ListOptions{})
	expect(apierrors.IsUnauthorized(err), "a token of nobody: %v", err)
}

func details(err error) *metav1.StatusDetails {
	status, ok := err.(apierrors.APIStatus)
	expect(ok && status.Status().Details != nil, "an error without details: %v", err)
	return status.Status().Details
}

func caused(err error, field string) bool {
	for _, cause := range details(err).Causes {
		if cause.Field == field {
			return true
		}
	}
	return false
}

// deletes: options of a deletion are obeyed; a deletion that waits for a finalizer shows the object.
func deletes(ctx context.Context, s *session) {
	leases := s.typed().CoordinationV1().Leases(s.namespace)
	one, err := leases.Create(ctx, lease("one"), metav1.CreateOptions{})
	must(err, "creating a lease")
	other := types.UID("another")
	err = leases.Delete(ctx, "one", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &other}})
	expect(apierrors.IsConflict(err), "deleting another: %v", err)
	err = leases.Delete(ctx, "one", metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
	must(err, "deleting for show")
	foreground := metav1.DeletePropagationBackground
	must(leases.Delete(ctx, "one", metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &one.UID, ResourceVersion: &one.ResourceVersion}, PropagationPolicy: &foreground,
	}), "deleting")
	_, err = leases.Get(ctx, "one", metav1.GetOptions{})
	expect(apierrors.IsNotFound(err), "deleted: %v", err)
	expect(s.wire.about("DELETE", "/leases/one")[0].sent == protobufMedia, "options were sent in another form")

	kept := lease("kept")
	kept.Finalizers = []string{"example.com/wait"}
	_, err = leases.Create(ctx, kept, metav1.CreateOptions{})
	must(err, "creating a lease")
	must(leases.Delete(ctx, "kept", metav1.DeleteOptions{}), "deleting")
	var found *coordinationv1.Lease
	found, err = leases.Get(ctx, "kept", metav1.GetOptions{})
	must(err, "what waits for its finalizer")
	expect(found.DeletionTimestamp != nil, "it is not being deleted: %v", found.ObjectMeta)
	found.Finalizers = nil
	_, err = leases.Update(ctx, found, metav1.UpdateOptions{})
	must(err, "taking the finalizer away")
	_, err = leases.Get(ctx, "kept", metav1.GetOptions{})
	expect(apierrors.IsNotFound(err), "it is still there: %v", err)

	for _, name := range []string{"a", "b"} {
		_, err = leases.Create(ctx, lease(name), metav1.CreateOptions{})
		must(err, "creating a lease")
	}
	must(leases.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "made-by=clientgo"}), "deleting all")
	left, err := leases.List(ctx, metav1.ListOptions{})
	must(err, "listing")
	expect(len(left.Items) == 0, "left: %v", left.Items)
	custom := s.custom().Resource(networks).Namespace(s.namespace)
	_, err = custom.Create(ctx, network("blue", map[string]any{}), metav1.CreateOptions{})
	must(err, "creating a network")
	must(s.metadata().Resource(networks).Namespace(s.namespace).Delete(ctx, "blue", metav1.DeleteOptions{}), "deleting a network")
}
