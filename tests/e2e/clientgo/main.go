// A program as users write it against Kubernetes with client-go, run by the tests against Netloom and against a real
// kube-apiserver: what it expects of the one it expects of the other.
//
//	clientgo vectors                           print objects as JSON and as Go's Protobuf, for the tests of the codec
//	clientgo -namespace NAMESPACE [...] CHECK  run one check; what is not as expected is printed, and the status is 1
//
// Nothing here sets a content type: what is sent and accepted is client-go's own choice.
package main

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	protobufMedia = "application/vnd.kubernetes.protobuf"
	patience      = 60 * time.Second
)

var networks = schema.GroupVersionResource{Group: "netloom.dev", Version: "v1alpha1", Resource: "networks"}

var checks = map[string]func(context.Context, *session){
	"election":         election,
	"typed-informers":  typedInformers,
	"custom-informers": customInformers,
	"pager":            pages,
	"metadata":         metadataOnly,
	"apply":            apply,
	"errors":           typedErrors,
	"deletes":          deletes,
	"recorder":         recorder,
	"events":           newEvents,
	"reviews":          reviews,
}

// session is one check that runs: the clients it uses, and what they sent.
type session struct {
	namespace string
	config    *rest.Config
	limited   string // The kubeconfig of a user without rights.
	lists     bool   // Whether informers may have to list.
	wire      *wire
}

// failure is how a check ends that finds something else than it expects.
type failure string

func fail(format string, args ...any) { panic(failure(fmt.Sprintf(format, args...))) }

func must(err error, what string) {
	if err != nil {
		fail("%s: %v", what, err)
	}
}

func expect(condition bool, format string, args ...any) {
	if !condition {
		fail(format, args...)
	}
}

// until waits for something that must come.
func until(ctx context.Context, what string, condition func() bool) {
	for !condition() {
		select {
		case <-ctx.Done():
			fail("it did not come: %s", what)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (s *session) typed() kubernetes.Interface {
	client, err := kubernetes.NewForConfig(s.config)
	must(err, "a typed client")
	return client
}

func (s *session) custom() dynamic.Interface {
	client, err := dynamic.NewForConfig(s.config)
	must(err, "a dynamic client")
	return client
}

func (s *session) metadata() metadata.Interface {
	client, err := metadata.NewForConfig(s.config)
	must(err, "a metadata client")
	return client
}

// wire notes each request and what its answer was written in.
type wire struct {
	next http.RoundTripper
	mu   sync.Mutex
	seen []exchange
}

type exchange struct {
	method, path, query, sent, answered string
	code                                int
}

func (w *wire) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := w.next.RoundTrip(request)
	if err != nil {
		return response, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen = append(w.seen, exchange{
		method: request.Method, path: request.URL.Path, query: request.URL.RawQuery,
		sent: request.Header.Get("Content-Type"), answered: response.Header.Get("Content-Type"), code: response.StatusCode,
	})
	return response, err
}

// about returns the requests with this method whose path ends so.
func (w *wire) about(method, suffix string) []exchange {
	w.mu.Lock()
	defer w.mu.Unlock()
	var found []exchange
	for _, one := range w.seen {
		if one.method == method && strings.HasSuffix(one.path, suffix) {
			found = append(found, one)
		}
	}
	return found
}

func run(name string, s *session) (err error) {
	defer func() {
		switch found := recover().(type) {
		case nil:
		case failure:
			err = fmt.Errorf("%s", string(found))
		default:
			panic(found)
		}
	}()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	checks[name](ctx, s)
	return nil
}

func main() {
	kubeconfig := flag.String("kubeconfig", "", "the kubeconfig of an administrator")
	limited := flag.String("limited", "", "the kubeconfig of a user without rights")
	lists := flag.Bool("lists", false, "the server cannot begin a watch by what is there: informers list instead")
	namespace := flag.String("namespace", "default", "the namespace to work in")
	flag.Parse()
	name := flag.Arg(0)
	if name == "vectors" {
		vectors()
		return
	}
	if checks[name] == nil {
		fmt.Fprintf(os.Stderr, "there is no check %q\n", name)
		os.Exit(2)
	}
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	seen := &wire{}
	config.QPS, config.Burst = 1000, 1000
	config.UserAgent = "clientgo"
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		seen.next = next
		return seen
	})
	s := &session{namespace: *namespace, config: config, limited: *limited, lists: *lists, wire: seen}
	if err := run(name, s); err != nil {
		fmt.Println(err)
		seen.mu.Lock()
		for _, one := range seen.seen[max(0, len(seen.seen)-20):] {
			fmt.Printf("    %s %s?%s (%s) -> %d %s\n", one.method, one.path, one.query, one.sent, one.code, one.answered)
		}
		os.Exit(1)
	}
	fmt.Println("ok")
}
