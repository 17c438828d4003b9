// The bench's client: one program, the same requests, against any server that speaks the Kubernetes API.
//
//	client -url URL -ca FILE -token T create -n 8000 -clients 32 -prefix a
//	client ... list -rounds 7
//	client ... watch -watchers 500 -events 40
//
// Every client has a connection of its own, as every node has, and takes HTTP/2 where the server offers it.
// Prints one JSON object.
package main

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

var (
	base  = flag.String("url", "", "the server")
	ca    = flag.String("ca", "", "its CA, a PEM file")
	token = flag.String("token", "", "bearer token")
	ns    = flag.String("namespace", "default", "namespace")
)

const collection = "/apis/netloom.dev/v1alpha1/namespaces/%s/networkattachments"

func fail(format string, args ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", args...)
	os.Exit(1)
}

// newClient returns a client that shares no connection with any other.
func newClient() *http.Client {
	pem, err := os.ReadFile(*ca)
	if err != nil {
		fail("%v", err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	return &http.Client{Transport: &http.Transport{
		TLSClientConfig:   &tls.Config{RootCAs: pool},
		ForceAttemptHTTP2: true,
	}}
}

func request(c *http.Client, method, path string, body []byte) *http.Response {
	req, err := http.NewRequest(method, *base+path, bytes.NewReader(body))
	if err != nil {
		fail("%v", err)
	}
	req.Header.Set("Authorization", "Bearer "+*token)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "netloom-bench")
	resp, err := c.Do(req)
	if err != nil {
		fail("%s %s: %v", method, path, err)
	}
	return resp
}

func drain(resp *http.Response, want int) []byte {
	data, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil || resp.StatusCode != want {
		fail("status %d, %v: %.300s", resp.StatusCode, err, data)
	}
	return data
}

func attachment(name string, i int) []byte {
	return []byte(fmt.Sprintf(`{"apiVersion":"netloom.dev/v1alpha1","kind":"NetworkAttachment",`+
		`"metadata":{"name":%q,"labels":{"app":"bench","shard":"s%d"}},`+
		`"spec":{"node":"n%d","network":"blue","port":{"type":"internal"},"securityProfiles":["web"]}}`, name, i%16, i%100))
}

func quantile(sorted []float64, q float64) float64 { return sorted[int(q*float64(len(sorted)-1))] }

func summary(ms []float64) map[string]float64 {
	sort.Float64s(ms)
	return map[string]float64{"p50_ms": quantile(ms, 0.5), "p99_ms": quantile(ms, 0.99), "min_ms": ms[0], "max_ms": ms[len(ms)-1]}
}

func create(args []string) {
	fs := flag.NewFlagSet("create", flag.ExitOnError)
	n := fs.Int("n", 1000, "how many")
	clients := fs.Int("clients", 32, "at once")
	prefix := fs.String("prefix", "a", "of the names")
	fs.Parse(args)
	path := fmt.Sprintf(collection, *ns)
	cs := make([]*http.Client, *clients)
	for i := range cs { // connections are made before the clock starts
		cs[i] = newClient()
		drain(request(cs[i], "GET", path+"?limit=1", nil), 200)
	}
	var next atomic.Int64
	ms := make([]float64, *n)
	var wg sync.WaitGroup
	start := time.Now()
	for _, c := range cs {
		wg.Add(1)
		go func(c *http.Client) {
			defer wg.Done()
			for {
				i := int(next.Add(1)) - 1
				if i >= *n {
					return
				}
				t := time.Now()
				drain(request(c, "POST", path, attachment(fmt.Sprintf("%s-%06d", *prefix, i), i)), 201)
				ms[i] = time.Since(t).Seconds() * 1000
			}
		}(c)
	}
	wg.Wait()
	out := summary(ms)
	out["per_second"] = float64(*n) / time.Since(start).Seconds()
	json.NewEncoder(os.Stdout).Encode(out)
}

func list(args []string) {
	fs := flag.NewFlagSet("list", flag.ExitOnError)
	rounds := fs.Int("rounds", 7, "how often")
	want := fs.Int("want", 0, "how many objects there must be")
	fs.Parse(args)
	c := newClient()
	path := fmt.Sprintf(collection, *ns)
	drain(request(c, "GET", path+"?limit=1", nil), 200)
	var ms []float64
	size := 0
	for i := 0; i < *rounds; i++ {
		t := time.Now()
		data := drain(request(c, "GET", path, nil), 200)
		ms = append(ms, time.Since(t).Seconds()*1000)
		size = len(data)
		if got := bytes.Count(data, []byte(`"uid":`)); *want > 0 && got != *want {
			fail("listed %d objects, not %d", got, *want)
		}
	}
	out := summary(ms)
	out["bytes"] = float64(size)
	json.NewEncoder(os.Stdout).Encode(out)
}

func watch(args []string) {
	fs := flag.NewFlagSet("watch", flag.ExitOnError)
	watchers := fs.Int("watchers", 500, "how many")
	events := fs.Int("events", 40, "how many")
	prefix := fs.String("prefix", "w", "of the names")
	fs.Parse(args)
	path := fmt.Sprintf(collection, *ns)
	writer := newClient()
	var page struct {
		Metadata struct{ ResourceVersion string }
	}
	json.Unmarshal(drain(request(writer, "GET", path+"?limit=1", nil), 200), &page)
	told := make(chan int, *watchers**events)
	var open sync.WaitGroup
	for w := 0; w < *watchers; w++ {
		open.Add(1)
		go func() {
			resp := request(newClient(), "GET", path+"?watch=1&resourceVersion="+page.Metadata.ResourceVersion, nil)
			if resp.StatusCode != 200 {
				drain(resp, 200)
			}
			open.Done()
			lines := bufio.NewReaderSize(resp.Body, 4096)
			for i := 0; ; i++ {
				line, err := lines.ReadString('\n')
				if err != nil {
					return
				}
				if !strings.Contains(line, fmt.Sprintf(`"%s-%06d"`, *prefix, i)) {
					fail("watcher was told of something else at %d: %.200s", i, line)
				}
				told <- i
			}
		}()
		if w%32 == 31 {
			open.Wait() // not all the TLS handshakes at once
		}
	}
	open.Wait()
	time.Sleep(500 * time.Millisecond)
	var ms []float64
	for i := 0; i < *events; i++ {
		t := time.Now()
		drain(request(writer, "POST", path, attachment(fmt.Sprintf("%s-%06d", *prefix, i), i)), 201)
		for w := 0; w < *watchers; w++ {
			select {
			case got := <-told:
				if got != i {
					fail("out of step: %d for %d", got, i)
				}
			case <-time.After(30 * time.Second):
				fail("after 30 s only %d of %d watchers were told", w, *watchers)
			}
		}
		ms = append(ms, time.Since(t).Seconds()*1000)
		time.Sleep(30 * time.Millisecond)
	}
	json.NewEncoder(os.Stdout).Encode(summary(ms))
}

func main() {
	flag.Parse()
	if flag.NArg() == 0 {
		fail("usage: client -url URL -ca FILE -token T create|list|watch|allocate|release|honest|attack ...")
	}
	switch flag.Arg(0) {
	case "create":
		create(flag.Args()[1:])
	case "list":
		list(flag.Args()[1:])
	case "watch":
		watch(flag.Args()[1:])
	case "allocate":
		allocate(flag.Args()[1:])
	case "release":
		release(flag.Args()[1:])
	case "honest":
		honest(flag.Args()[1:])
	case "attack":
		attack(flag.Args()[1:])
	default:
		fail("no such measurement: %s", flag.Arg(0))
	}
}
