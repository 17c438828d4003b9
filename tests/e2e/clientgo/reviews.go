package main

import (
	"context"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// reviews: who one is, and what one may do.
func reviews(ctx context.Context, s *session) {
	limited, err := clientcmd.BuildConfigFromFlags("", s.limited)
	must(err, "the other kubeconfig")
	for _, one := range []struct {
		client  kubernetes.Interface
		allowed bool
	}{{s.typed(), true}, {kubernetes.NewForConfigOrDie(limited), false}} {
		me, err := one.client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		must(err, "asking who one is")
		expect(me.Status.UserInfo.Username != "" && len(me.Status.UserInfo.Groups) > 0, "one is %v", me.Status.UserInfo)
		for _, attributes := range []*authorizationv1.ResourceAttributes{
			{Namespace: s.namespace, Verb: "create", Group: "netloom.dev", Resource: "networks"},
			{Namespace: s.namespace, Verb: "delete", Group: "coordination.k8s.io", Resource: "leases", Name: "x"},
		} {
			answer, err := one.client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
				Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: attributes},
			}, metav1.CreateOptions{})
			must(err, "asking what one may do")
			expect(answer.Status.Allowed == one.allowed, "%s: %v", attributes, answer.Status)
			expect(answer.Spec.ResourceAttributes.Resource == attributes.Resource, "about %v", answer.Spec)
		}
	}
	for _, one := range s.wire.about("POST", "reviews") {
		expect(one.sent == protobufMedia && one.answered == protobufMedia, "sent in %q, answered in %q", one.sent, one.answered)
	}
}
