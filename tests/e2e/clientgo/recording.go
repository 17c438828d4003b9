package main

import (
	"context"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/record"
)

// about makes the object that events are about.
func about(ctx context.Context, s *session, client kubernetes.Interface) *coordinationv1.Lease {
	made, err := client.CoordinationV1().Leases(s.namespace).Create(ctx, lease("subject"), metav1.CreateOptions{})
	must(err, "creating a lease")
	return made
}

// recorder: events of client-go's recorder arrive, and those that come again are counted.
func recorder(ctx context.Context, s *session) {
	client := s.typed()
	subject := about(ctx, s, client)
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	defer broadcaster.Shutdown()
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events("")})
	recording := broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "clientgo"})
	for range 3 {
		recording.Eventf(subject, corev1.EventTypeWarning, "Tried", "it was %s", "tried")
	}
	var found corev1.Event
	until(ctx, "an event with a count of 3", func() bool {
		listed, err := client.CoreV1().Events(s.namespace).List(ctx, metav1.ListOptions{
			FieldSelector: "involvedObject.kind=Lease,involvedObject.name=subject,reason=Tried",
		})
		must(err, "listing events")
		expect(len(listed.Items) < 2, "there are %d events", len(listed.Items))
		if len(listed.Items) == 1 {
			found = listed.Items[0]
		}
		return found.Count == 3
	})
	expect(found.Message == "it was tried" && found.Type == "Warning", "the event is %v", found)
	expect(found.Source.Component == "clientgo" && found.ReportingController == "clientgo", "from %v", found.Source)
	expect(found.InvolvedObject.UID == subject.UID && !found.LastTimestamp.IsZero(), "the event is %v", found)
}

// newEvents: the recorder of tools/events, which uses events.k8s.io/v1 where there is one.
func newEvents(ctx context.Context, s *session) {
	client := s.typed()
	subject := about(ctx, s, client)
	broadcaster := events.NewEventBroadcasterAdapterWithContext(ctx, client)
	defer broadcaster.Shutdown()
	broadcaster.StartRecordingToSink(ctx.Done())
	broadcaster.NewRecorder("clientgo").Eventf(subject, nil, corev1.EventTypeNormal, "Tried", "Trying", "it was %s", "tried")
	until(ctx, "an event", func() bool {
		listed, err := client.CoreV1().Events(s.namespace).List(ctx, metav1.ListOptions{FieldSelector: "reason=Tried"})
		must(err, "listing events")
		return len(listed.Items) == 1 && listed.Items[0].Message == "it was tried" &&
			listed.Items[0].InvolvedObject.Name == "subject" && listed.Items[0].ReportingController == "clientgo"
	})
}
