package main

import (
	"context"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
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

// newEvents: the recorder of tools/events, which uses events.k8s.io/v1; both versions show the same Events.
func newEvents(ctx context.Context, s *session) {
	client := s.typed()
	subject := about(ctx, s, client)
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: client.EventsV1()})
	defer broadcaster.Shutdown()
	must(broadcaster.StartRecordingToSinkWithContext(ctx), "recording")
	recording := broadcaster.NewRecorder(scheme.Scheme, "example.com/clientgo")
	for range 2 { // The second one makes a series of it.
		recording.Eventf(subject, nil, corev1.EventTypeNormal, "Tried", "Trying", "it was %s", "tried")
	}
	var found eventsv1.Event
	until(ctx, "a series of events", func() bool {
		listed, err := client.EventsV1().Events(s.namespace).List(ctx, metav1.ListOptions{FieldSelector: "reason=Tried"})
		must(err, "listing events")
		expect(len(listed.Items) < 2, "there are %d events", len(listed.Items))
		if len(listed.Items) == 1 {
			found = listed.Items[0]
		}
		return found.Series != nil && found.Series.Count == 2
	})
	expect(found.Note == "it was tried" && found.Action == "Trying" && !found.EventTime.IsZero(), "the event is %v", found)
	expect(found.Regarding.UID == subject.UID && found.ReportingController == "example.com/clientgo", "the event is %v", found)
	same, err := client.CoreV1().Events(s.namespace).Get(ctx, found.Name, metav1.GetOptions{})
	must(err, "reading the event as v1")
	expect(same.Message == found.Note && same.InvolvedObject == found.Regarding && same.UID == found.UID, "the event is %v", same)
	for _, one := range s.wire.about("POST", "/events") {
		expect(one.sent == protobufMedia && one.answered == protobufMedia, "sent in %q, answered in %q", one.sent, one.answered)
	}

	watching, err := client.EventsV1().Events(s.namespace).Watch(ctx, metav1.ListOptions{ResourceVersion: found.ResourceVersion})
	must(err, "watching events")
	defer watching.Stop()
	must(client.CoreV1().Events(s.namespace).Delete(ctx, found.Name, metav1.DeleteOptions{}), "deleting the event as v1")
	select {
	case event := <-watching.ResultChan():
		gone, ok := event.Object.(*eventsv1.Event)
		expect(ok && event.Type == watch.Deleted && gone.Note == found.Note, "%s %v", event.Type, event.Object)
	case <-ctx.Done():
		fail("no event says that it is gone")
	}
}
