// Callers that mean well, and callers that do not.
//
//	client ... honest -tokens FILE -seconds 10
//	client ... attack -role viewer -connections 8 -seconds 10
//
// honest runs one caller for each line of FILE, which is a token: each creates an attachment, reads it, lists those of
// its node and deletes it, one request after the other. attack sends the most expensive requests that a role allows, as
// fast as they are answered, over several connections, and prints how many were answered, by status.
package main

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"
)

type call struct {
	method, path, media, accept string
	body                        []byte
}

// send makes one request and reads the whole answer; 0 is an answer that did not come.
func send(c *http.Client, token string, what call) int {
	req, err := http.NewRequest(what.method, *base+what.path, bytes.NewReader(what.body))
	if err != nil {
		fail("%v", err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	req.Header.Set("Content-Type", "application/json")
	if what.media != "" {
		req.Header.Set("Content-Type", what.media)
	}
	req.Header.Set("Accept", "application/json")
	if what.accept != "" {
		req.Header.Set("Accept", what.accept)
	}
	resp, err := c.Do(req)
	if err != nil {
		return 0
	}
	_, err = io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	if err != nil {
		return 0
	}
	return resp.StatusCode
}

func honest(args []string) {
	fs := flag.NewFlagSet("honest", flag.ExitOnError)
	file := fs.String("tokens", "", "a file with one token on each line")
	seconds := fs.Float64("seconds", 10, "how long")
	prefix := fs.String("prefix", "h", "of the names")
	fs.Parse(args)
	text, err := os.ReadFile(*file)
	if err != nil {
		fail("%v", err)
	}
	tokens := strings.Fields(string(text))
	path := fmt.Sprintf(collection, *ns)
	cs := make([]*http.Client, len(tokens))
	for i, token := range tokens {
		cs[i] = newClient()
		if got := send(cs[i], token, call{method: "GET", path: path + "?limit=1"}); got != 200 {
			fail("an honest caller was answered %d", got)
		}
	}
	var lock sync.Mutex
	var wg sync.WaitGroup
	var ms []float64
	start := time.Now()
	end := start.Add(time.Duration(*seconds * float64(time.Second)))
	for i, token := range tokens {
		wg.Add(1)
		go func(i int, token string) {
			defer wg.Done()
			var mine []float64
			for round := 0; time.Now().Before(end); round++ {
				name := fmt.Sprintf("%s-%d-%d", *prefix, i, round)
				for _, one := range []struct {
					call
					want int
				}{
					{call{method: "POST", path: path, body: attachment(name, i)}, 201},
					{call{method: "GET", path: path + "/" + name}, 200},
					{call{method: "GET", path: fmt.Sprintf("%s?limit=100&fieldSelector=spec.node%%3Dn%d", path, i)}, 200},
					{call{method: "DELETE", path: path + "/" + name}, 200},
				} {
					t := time.Now()
					if got := send(cs[i], token, one.call); got != one.want {
						fail("%s %s was answered %d", one.method, one.path, got)
					}
					mine = append(mine, time.Since(t).Seconds()*1000)
				}
			}
			lock.Lock()
			ms = append(ms, mine...)
			lock.Unlock()
		}(i, token)
	}
	wg.Wait()
	out := summary(ms)
	out["per_second"] = float64(len(ms)) / time.Since(start).Seconds()
	json.NewEncoder(os.Stdout).Encode(out)
}

const group = "/apis/netloom.dev/v1alpha1"

func selected(selector string) string { return "?labelSelector=" + url.QueryEscape(selector) }

// batchOf repeats one request as often as a batch takes it.
func batchOf(n int, method, path string) call {
	one, _ := json.Marshal(asked{Method: method, Path: path})
	body := []byte(`{"requests":[` + strings.Repeat(string(one)+",", n-1) + string(one) + `]}`)
	return call{method: "POST", path: batchPath, body: body}
}

func object(kind, name, rest string) []byte {
	return []byte(fmt.Sprintf(`{"apiVersion":"netloom.dev/v1alpha1","kind":%q,"metadata":{"name":%q%s}`, kind, name, rest))
}

// anagrams returns fields that are not there, each nearly one that is.
func anagrams(n int) string {
	words := []string{"securityProfiles", "portSecurity", "networkName", "attachment", "addresses", "interfaceName"}
	var out strings.Builder
	for i := 0; i < n; i++ {
		word := []byte(words[i%len(words)])
		rand.Shuffle(len(word), func(a, b int) { word[a], word[b] = word[b], word[a] })
		fmt.Fprintf(&out, `,"%s%d":1`, word, i)
	}
	return out.String()
}

func many(n int, format string) string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf(format, i)
	}
	return strings.Join(out, ",")
}

// worst returns the most expensive requests of a role.
func worst(role string) []call {
	attachments := fmt.Sprintf(collection, *ns)
	lists := group + "/networkattachments"
	table := "application/json;as=Table;v=v1;g=meta.k8s.io"
	commas := strings.Repeat(",", 8000)
	large := strings.Repeat("x", 200_000)
	switch role {
	case "nobody":
		return []call{{method: "GET", path: lists}, {method: "GET", path: lists + selected(commas)},
			{method: "POST", path: attachments, body: make([]byte, 1<<20)}, {method: "GET", path: "/healthz"}}
	case "node":
		return []call{
			batchOf(250, "GET", group+"/nodes/n1"+selected(strings.Repeat(",", 3500))),
			batchOf(3, "GET", group+"/nodes/n1"+selected(strings.Repeat(",", 300_000))),
			{method: "GET", path: lists + selected(commas)},
			{method: "GET", path: lists + selected(strings.Repeat("a,", 4000))},
			{method: "PATCH", path: group + "/nodes/n1", media: "application/merge-patch+json",
				body: []byte(`{"metadata":{"labels":{` + many(50_000, `"l%d":"v"`) + `}}}`)},
			{method: "PATCH", path: group + "/nodes/n1", media: "application/merge-patch+json",
				body: []byte(`{"metadata":{"annotations":{"a":"` + large + `"}}}`)},
			{method: "POST", path: group + "/watches", body: []byte(strings.Repeat(`{"begin":1,"path":"/x"}`+"\n", 2000))},
		}
	case "viewer":
		return []call{
			{method: "GET", path: lists, accept: table},
			{method: "GET", path: lists, accept: "application/yaml"},
			{method: "GET", path: lists + selected(many(32, "!l%d"))},
			{method: "GET", path: lists + "?labelSelector=" + url.QueryEscape("app in ("+many(500, "v%d")+")")},
			{method: "GET", path: "/openapi/v2"},
			{method: "POST", path: "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
				body: []byte(`{"spec":{"nonResourceAttributes":{"verb":"get","path":"` + strings.Repeat("/", 60_000) + `"}}}`)},
		}
	case "editor":
		return []call{
			{method: "POST", path: attachments, body: append(object("NetworkAttachment", "bad", ""), []byte(anagrams(30_000)+"}")...)},
			{method: "POST", path: attachments, body: append(object("NetworkAttachment", "bad", ""),
				[]byte(`,"spec":{"a":[`+strings.Repeat("[],", 900_000)+`[]]}}`)...)},
			{method: "POST", path: attachments, media: "application/yaml", body: []byte("a:\n" + strings.Repeat("- b\n", 700_000))},
			{method: "POST", path: attachments, body: object("NetworkAttachment", "bad", `,"labels":{`+many(90_000, `"l%d":"v"`)+`}}`)},
			{method: "PATCH", path: attachments + "/mine-000000?fieldManager=x&force=true", media: "application/apply-patch+yaml",
				body: []byte(`{"apiVersion":"netloom.dev/v1alpha1","kind":"NetworkAttachment","metadata":{"name":"mine-000000"},` +
					`"spec":{"node":"n1","network":"blue","port":{"type":"internal"},"securityProfiles":[` + many(20_000, `"p%d"`) + `]}}`)},
			{method: "PATCH", path: attachments + "/mine-000000", media: "application/json-patch+json",
				body: []byte(`[{"op":"add","path":"/spec/x","value":[` + strings.Repeat("1,", 50_000) + `1]},` +
					strings.Repeat(`{"op":"add","path":"/spec/x/0","value":1},`, 9_000) + `{"op":"remove","path":"/spec/x"}]`)},
			{method: "PUT", path: attachments + "/mine-000000", body: []byte(`{"apiVersion":"netloom.dev/v1alpha1",` +
				`"kind":"NetworkAttachment","metadata":{"name":"mine-000000","managedFields":[` +
				many(15_000, `{"manager":"m%[1]d","operation":"Update","apiVersion":"netloom.dev/v1alpha1","fieldsType":"FieldsV1","fieldsV1":{"f:x%[1]d":{}}}`) +
				`]},"spec":{"node":"n1","network":"blue","port":{"type":"internal"}}}`)},
		}
	case "admin":
		return []call{
			batchOf(256, "GET", group+"/namespaces/default/networkattachments/mine-000000"),
			batchOf(256, "DELETE", group+"/namespaces/default/networkattachments/none"),
			{method: "GET", path: lists},
			{method: "GET", path: lists + "?limit=10000", accept: table},
			{method: "POST", path: attachments + "?dryRun=All", body: object("NetworkAttachment", "big",
				`,"annotations":{"a":"`+large+`"}},"spec":{"node":"n1","network":"blue","port":{"type":"internal"}}`)},
		}
	}
	fail("no such role: %s", role)
	return nil
}

func attack(args []string) {
	fs := flag.NewFlagSet("attack", flag.ExitOnError)
	role := fs.String("role", "viewer", "nobody, node, viewer, editor or admin")
	connections := fs.Int("connections", 8, "at once")
	seconds := fs.Float64("seconds", 10, "how long")
	fs.Parse(args)
	calls := worst(*role)
	end := time.Now().Add(time.Duration(*seconds * float64(time.Second)))
	counts := map[string]int{}
	var lock sync.Mutex
	var wg sync.WaitGroup
	for i := 0; i < *connections; i++ {
		wg.Add(1)
		go func(i int) {
			defer wg.Done()
			c := newClient()
			c.Timeout = 20 * time.Second
			shakes := *role == "nobody" && i%2 == 0
			if shakes { // A new connection for each request.
				c.Transport.(*http.Transport).DisableKeepAlives = true
				c.Transport.(*http.Transport).TLSClientConfig.ClientSessionCache = tls.NewLRUClientSessionCache(0)
			}
			for n := i; time.Now().Before(end); n++ {
				with := *token
				if *role == "nobody" {
					with = fmt.Sprintf("guess-%d-%d", i, n)
				}
				got := send(c, with, calls[n%len(calls)])
				lock.Lock()
				counts[fmt.Sprint(got)]++
				lock.Unlock()
			}
		}(i)
	}
	wg.Wait()
	json.NewEncoder(os.Stdout).Encode(counts)
}
