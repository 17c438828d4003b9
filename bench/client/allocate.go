// Attachments on their way to an address.
//
//	client ... allocate -n 8000 -clients 8 -batch 64 -network bench -prefix a
//	client ... release -n 8000 -clients 8 -batch 64 -prefix a
//
// allocate creates attachments and watches until each has its address; the clock runs from the first request to the
// last address seen. release deletes them and watches until their locks are gone too. With -batch 0 every request goes
// alone; otherwise so many go as one, where the server takes that.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

const batchPath = "/apis/netloom.dev/v1alpha1/batch"

type asked struct {
	Method string          `json:"method"`
	Path   string          `json:"path"`
	Body   json.RawMessage `json:"body,omitempty"`
}

// together carries out n requests: size in a batch, or alone where size is 0.
func together(n, clients, size int, make func(i int) asked, want int, begun func(i int)) {
	cs := connected(clients)
	step := max(size, 1)
	var next atomic.Int64
	var wg sync.WaitGroup
	for _, c := range cs {
		wg.Add(1)
		go func(c *http.Client) {
			defer wg.Done()
			for {
				first := int(next.Add(int64(step))) - step
				if first >= n {
					return
				}
				var group []asked
				for i := first; i < min(first+step, n); i++ {
					begun(i)
					group = append(group, make(i))
				}
				if size == 0 {
					drain(request(c, group[0].Method, group[0].Path, group[0].Body), want)
				} else {
					sendBatch(c, group, want)
				}
			}
		}(c)
	}
	wg.Wait()
}

func sendBatch(c *http.Client, group []asked, want int) {
	body, err := json.Marshal(map[string]any{"requests": group})
	if err != nil {
		fail("%v", err)
	}
	var said struct{ Answers []struct{ Code int } }
	data := drain(request(c, "POST", batchPath, body), 200)
	if err := json.Unmarshal(data, &said); err != nil || len(said.Answers) != len(group) {
		fail("batch: %d answers, %v", len(said.Answers), err)
	}
	for _, answer := range said.Answers {
		if answer.Code != want {
			fail("batch: %.300s", data)
		}
	}
}

// connected returns clients whose connections are there before any clock starts.
func connected(n int) []*http.Client {
	cs := make([]*http.Client, n)
	for i := range cs {
		cs[i] = newClient()
		drain(request(cs[i], "GET", fmt.Sprintf(collection, *ns)+"?limit=1", nil), 200)
	}
	return cs
}

func revision(path string) string {
	var page struct {
		Metadata struct{ ResourceVersion string }
	}
	json.Unmarshal(drain(request(newClient(), "GET", path+"?limit=1", nil), 200), &page)
	return page.Metadata.ResourceVersion
}

// follow gives every event of a collection to see, until it returns false; the watch is open when follow returns.
func follow(path string, see func(line []byte) bool) chan struct{} {
	done := make(chan struct{})
	resp := request(newClient(), "GET", path+"?watch=1&resourceVersion="+revision(path), nil)
	if resp.StatusCode != 200 {
		drain(resp, 200)
	}
	go func() {
		lines := bufio.NewReaderSize(resp.Body, 1<<20)
		for {
			line, err := lines.ReadSlice('\n')
			if err != nil {
				fail("the watch ended: %v", err)
			}
			if !see(line) {
				resp.Body.Close()
				close(done)
				return
			}
		}
	}()
	return done
}

// field returns what stands between before and the next quote, or "".
func field(line []byte, before string) string {
	at := bytes.Index(line, []byte(before))
	if at < 0 {
		return ""
	}
	rest := line[at+len(before):]
	if end := bytes.IndexByte(rest, '"'); end >= 0 {
		return string(rest[:end])
	}
	return ""
}

func wait(done chan struct{}, limit time.Duration, what func() string) {
	select {
	case <-done:
	case <-time.After(limit):
		fail("after %v: %s", limit, what())
	}
}

func allocate(args []string) {
	fs := flag.NewFlagSet("allocate", flag.ExitOnError)
	n := fs.Int("n", 1000, "how many")
	clients := fs.Int("clients", 8, "at once")
	batch := fs.Int("batch", 0, "requests in one")
	network := fs.String("network", "bench", "the Network")
	prefix := fs.String("prefix", "a", "of the names")
	limit := fs.Duration("limit", 2*time.Minute, "how long to wait")
	fs.Parse(args)
	path := fmt.Sprintf(collection, *ns)
	began := make([]time.Time, *n)
	ms := make([]float64, *n)
	owner := map[string]int{}
	var addressed atomic.Int64
	see := func(line []byte) bool {
		var i int
		if _, err := fmt.Sscanf(field(line, `"name":"`+*prefix+"-"), "%d", &i); err != nil {
			return true
		}
		ip := field(line, `"ips":["`)
		if ip == "" || ms[i] > 0 {
			return true
		}
		if other, taken := owner[ip]; taken {
			fail("%s was given to %d and to %d", ip, other, i)
		}
		owner[ip] = i
		ms[i] = time.Since(began[i]).Seconds() * 1000
		return addressed.Add(1) < int64(*n)
	}
	done := follow(path, see)
	create := func(i int) asked {
		body := fmt.Sprintf(`{"apiVersion":"netloom.dev/v1alpha1","kind":"NetworkAttachment","metadata":{"name":"%s-%d"},`+
			`"spec":{"node":"n%d","network":%q}}`, *prefix, i, i%100, *network)
		return asked{"POST", path, json.RawMessage(body)}
	}
	start := time.Now()
	together(*n, *clients, *batch, create, 201, func(i int) { began[i] = time.Now() })
	created := time.Since(start)
	wait(done, *limit, func() string { return fmt.Sprintf("%d of %d have an address", addressed.Load(), *n) })
	out := summary(ms)
	out["seconds"] = time.Since(start).Seconds()
	out["per_second"] = float64(*n) / time.Since(start).Seconds()
	out["created_per_second"] = float64(*n) / created.Seconds()
	json.NewEncoder(os.Stdout).Encode(out)
}

func release(args []string) {
	fs := flag.NewFlagSet("release", flag.ExitOnError)
	n := fs.Int("n", 1000, "how many")
	clients := fs.Int("clients", 8, "at once")
	batch := fs.Int("batch", 0, "requests in one")
	prefix := fs.String("prefix", "a", "of the names")
	limit := fs.Duration("limit", 2*time.Minute, "how long to wait")
	fs.Parse(args)
	path := fmt.Sprintf(collection, *ns)
	var gone atomic.Int64
	done := follow(fmt.Sprintf("/apis/netloom.dev/v1alpha1/namespaces/%s/iplocks", *ns), func(line []byte) bool {
		return !bytes.HasPrefix(line, []byte(`{"type":"DELETED"`)) || gone.Add(1) < int64(*n)
	})
	remove := func(i int) asked { return asked{"DELETE", fmt.Sprintf("%s/%s-%d", path, *prefix, i), nil} }
	start := time.Now()
	together(*n, *clients, *batch, remove, 200, func(int) {})
	wait(done, *limit, func() string { return fmt.Sprintf("%d of %d locks are gone", gone.Load(), *n) })
	out := map[string]float64{"seconds": time.Since(start).Seconds(), "per_second": float64(*n) / time.Since(start).Seconds()}
	json.NewEncoder(os.Stdout).Encode(out)
}
