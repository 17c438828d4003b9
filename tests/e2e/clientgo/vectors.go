package main

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"os"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
)

// vectors prints objects as JSON and as the Protobuf that Go writes, for the tests of the codec.
func vectors() {
	at := time.Date(2026, 11, 15, 9, 8, 7, 123456000, time.UTC)
	seconds, micro := metav1.NewTime(at), metav1.NewMicroTime(at)
	yes, no, grace, number, empty, strategy := true, false, int64(-1), int32(300), "", coordinationv1.CoordinatedLeaseStrategy("OldestEmulationVersion")
	uid, background, remaining := types.UID("u-1"), metav1.DeletePropagationBackground, int64(1<<40)
	meta := metav1.ObjectMeta{
		Name: "blue", GenerateName: "b-", Namespace: "team", UID: "0198", ResourceVersion: "42", Generation: 7,
		CreationTimestamp: seconds, DeletionTimestamp: &seconds, DeletionGracePeriodSeconds: &grace,
		Labels:      map[string]string{"b": "2", "a": "1", "ü": ""},
		Annotations: map[string]string{"note": "line\nline"},
		OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "netloom.dev/v1alpha1", Kind: "Network", Name: "red", UID: "0197", Controller: &yes, BlockOwnerDeletion: &no},
			{APIVersion: "v1", Kind: "Namespace", Name: "team", UID: "0196"},
		},
		Finalizers: []string{"example.com/one", "two"},
		ManagedFields: []metav1.ManagedFieldsEntry{
			{Manager: "m", Operation: "Apply", APIVersion: "v1", Time: &seconds, FieldsType: "FieldsV1",
				FieldsV1: &metav1.FieldsV1{Raw: []byte(`{"f:metadata":{"f:labels":{".":{}}}}`)}, Subresource: "status"},
		},
	}
	reference := corev1.ObjectReference{Kind: "Network", Namespace: "team", Name: "blue", UID: "0198", APIVersion: "netloom.dev/v1alpha1", ResourceVersion: "41", FieldPath: "spec"}
	objects := []runtime.Object{
		&coordinationv1.Lease{},
		&coordinationv1.Lease{ObjectMeta: meta, Spec: coordinationv1.LeaseSpec{
			HolderIdentity: &empty, LeaseDurationSeconds: &number, AcquireTime: &micro, RenewTime: &micro,
			LeaseTransitions: &number, Strategy: &strategy, PreferredHolder: &empty,
		}},
		&coordinationv1.LeaseList{ListMeta: metav1.ListMeta{ResourceVersion: "42", Continue: "more", RemainingItemCount: &remaining},
			Items: []coordinationv1.Lease{{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, {ObjectMeta: meta}}},
		&corev1.Event{},
		&corev1.Event{ObjectMeta: meta, InvolvedObject: reference, Reason: "R", Message: "m", Source: corev1.EventSource{Component: "c", Host: "h"},
			FirstTimestamp: seconds, LastTimestamp: seconds, Count: 3, Type: "Normal", EventTime: micro,
			Series: &corev1.EventSeries{Count: 2, LastObservedTime: micro}, Action: "A", Related: &reference,
			ReportingController: "c", ReportingInstance: "i"},
		&eventsv1.Event{ObjectMeta: meta, EventTime: micro, Series: &eventsv1.EventSeries{Count: 2, LastObservedTime: micro}, ReportingController: "c",
			ReportingInstance: "i", Action: "A", Reason: "R", Regarding: reference, Related: &reference, Note: "n", Type: "Normal",
			DeprecatedSource: corev1.EventSource{Component: "c", Host: "h"}, DeprecatedFirstTimestamp: seconds, DeprecatedLastTimestamp: seconds, DeprecatedCount: 3},
		&corev1.Namespace{ObjectMeta: meta, Spec: corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{"kubernetes"}},
			Status: corev1.NamespaceStatus{Phase: "Terminating", Conditions: []corev1.NamespaceCondition{
				{Type: "NamespaceContentRemaining", Status: "True", LastTransitionTime: seconds, Reason: "R", Message: "m"}}}},
		&metav1.Status{Status: "Failure", Message: "no", Reason: "NotFound", Code: 404, Details: &metav1.StatusDetails{
			Name: "n", Group: "g", Kind: "k", UID: "u", RetryAfterSeconds: 1,
			Causes: []metav1.StatusCause{{Type: "FieldValueInvalid", Message: "m", Field: "spec.vni"}}}},
		&metav1.DeleteOptions{GracePeriodSeconds: &grace, Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &empty},
			OrphanDependents: &no, PropagationPolicy: &background, DryRun: []string{"All"}},
		&authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: "team", Verb: "list", Group: "netloom.dev", Version: "v1alpha1",
				Resource: "networks", Subresource: "status", Name: "blue",
				FieldSelector: &authorizationv1.FieldSelectorAttributes{RawSelector: "a=b", Requirements: []metav1.FieldSelectorRequirement{{Key: "a", Operator: "In", Values: []string{"b"}}}},
				LabelSelector: &authorizationv1.LabelSelectorAttributes{RawSelector: "a"}},
			NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: "/x", Verb: "get"}},
			Status: authorizationv1.SubjectAccessReviewStatus{Allowed: true, Denied: true, Reason: "r", EvaluationError: "e"}},
		&authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: "team"},
			Status: authorizationv1.SubjectRulesReviewStatus{Incomplete: true, EvaluationError: "e",
				ResourceRules:    []authorizationv1.ResourceRule{{Verbs: []string{"*"}, APIGroups: []string{""}, Resources: []string{"a", "b"}, ResourceNames: []string{"c"}}},
				NonResourceRules: []authorizationv1.NonResourceRule{{Verbs: []string{"get"}, NonResourceURLs: []string{"/healthz"}}}}},
		&authenticationv1.SelfSubjectReview{Status: authenticationv1.SelfSubjectReviewStatus{UserInfo: authenticationv1.UserInfo{
			Username: "me", UID: "1", Groups: []string{"a", "b"}}}},
		&metav1.PartialObjectMetadata{ObjectMeta: meta},
		&metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}, Items: []metav1.PartialObjectMetadata{{ObjectMeta: meta}}},
	}
	serializer := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme)
	raw := protobuf.NewRawSerializer(scheme.Scheme, scheme.Scheme)
	var made []map[string]any
	for _, object := range objects {
		version := metav1.SchemeGroupVersion.WithKind("PartialObjectMetadata")
		if kinds, _, err := scheme.Scheme.ObjectKinds(object); err == nil {
			version = kinds[0]
		} else if _, ok := object.(*metav1.PartialObjectMetadataList); ok {
			version.Kind += "List"
		}
		if _, ok := object.(*metav1.DeleteOptions); ok {
			version = coordinationv1.SchemeGroupVersion.WithKind("DeleteOptions")
		}
		object.GetObjectKind().SetGroupVersionKind(version)
		var encoded bytes.Buffer
		must(serializer.Encode(object, &encoded), "encoding "+version.String())
		var event bytes.Buffer
		must(raw.Encode(&metav1.WatchEvent{Type: "MODIFIED", Object: runtime.RawExtension{Raw: encoded.Bytes()}}, &event), "encoding an event")
		var framed bytes.Buffer
		_, err := protobuf.LengthDelimitedFramer.NewFrameWriter(&framed).Write(event.Bytes())
		must(err, "framing an event")
		made = append(made, map[string]any{
			"object": object, "protobuf": hex.EncodeToString(encoded.Bytes()), "event": hex.EncodeToString(framed.Bytes()),
		})
	}
	writer := json.NewEncoder(os.Stdout)
	writer.SetEscapeHTML(false)
	for _, one := range made {
		must(writer.Encode(one), "printing")
	}
}
