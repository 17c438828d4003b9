package main

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// candidate takes part in an election until its context ends; it says when it leads.
func candidate(ctx context.Context, client kubernetes.Interface, namespace, name string, releases bool) (leads, over chan struct{}) {
	leads, over = make(chan struct{}), make(chan struct{})
	lock := &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: namespace, Name: "leader"},
		Client:     client.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: name},
	}
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock:            lock,
		LeaseDuration:   5 * time.Second,
		RenewDeadline:   4 * time.Second,
		RetryPeriod:     200 * time.Millisecond,
		ReleaseOnCancel: releases,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { close(leads) },
			OnStoppedLeading: func() {},
		},
	})
	must(err, "a candidate")
	go func() {
		defer close(over)
		elector.Run(ctx)
	}()
	return leads, over
}

func wait(ctx context.Context, what string, signal <-chan struct{}) {
	select {
	case <-signal:
	case <-ctx.Done():
		fail("it did not come: %s", what)
	}
}

// election: one candidate leads and goes without a word; the other takes over when the lease is over, and gives it up.
func election(ctx context.Context, s *session) {
	client := s.typed()
	first, leave := context.WithCancel(ctx)
	defer leave()
	firstLeads, firstOver := candidate(first, client, s.namespace, "first", false)
	wait(ctx, "the first candidate leads", firstLeads)
	second, release := context.WithCancel(ctx)
	defer release()
	secondLeads, secondOver := candidate(second, client, s.namespace, "second", true)
	select {
	case <-secondLeads:
		fail("both candidates lead")
	case <-time.After(500 * time.Millisecond):
	}
	leave()
	wait(ctx, "the first candidate is gone", firstOver)
	wait(ctx, "the second candidate leads", secondLeads)
	lease, err := client.CoordinationV1().Leases(s.namespace).Get(ctx, "leader", metav1.GetOptions{})
	must(err, "reading the lease")
	expect(*lease.Spec.HolderIdentity == "second", "the holder is %q", *lease.Spec.HolderIdentity)
	expect(*lease.Spec.LeaseTransitions == 1, "there were %d transitions", *lease.Spec.LeaseTransitions)
	expect(*lease.Spec.LeaseDurationSeconds == 5, "it lasts %d seconds", *lease.Spec.LeaseDurationSeconds)
	expect(lease.Spec.RenewTime.Nanosecond()%1000 == 0 && !lease.Spec.RenewTime.IsZero(), "renewed at %s", lease.Spec.RenewTime)
	release()
	wait(ctx, "the second candidate is gone", secondOver)
	for attempt := 1; ; attempt++ {
		lease, err = client.CoordinationV1().Leases(s.namespace).Get(ctx, "leader", metav1.GetOptions{})
		must(err, "reading the lease")
		if *lease.Spec.HolderIdentity == "" {
			break
		}
		// A candidate that is cancelled while it renews may not know the lease that it has just written.
		expect(attempt < 5, "the holder is %q after it released the lease", *lease.Spec.HolderIdentity)
		again, leave := context.WithCancel(ctx)
		leads, over := candidate(again, client, s.namespace, "second", true)
		wait(ctx, "the second candidate leads again", leads)
		leave()
		wait(ctx, "the second candidate is gone again", over)
	}
	for _, method := range []string{"POST", "GET", "PUT"} {
		for _, one := range s.wire.about(method, "/leases/leader") {
			expect(one.answered == protobufMedia, "%s was answered in %q", method, one.answered)
			expect(method == "GET" || one.sent == protobufMedia, "%s was sent in %q", method, one.sent)
		}
	}
}
