package s3

import (
	"crypto/md5"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tenure-go/tenure/fence"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

func claim(token fence.Token) fence.Claim {
	return fence.Claim{Authority: fence.ID{15: 1}, Name: "orders/1", Acquisition: fence.ID{15: byte(token)}, Token: token}
}

func open(t *testing.T, at string) *Bucket {
	t.Helper()
	b, err := Open(Options{URL: at})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

// proxy stands between a client and the server at a URL. It counts PUTs, and cuts the connection of those that cut names, after
// the server has answered: they were applied.
type proxy struct {
	cut func(put int) bool

	mu   sync.Mutex
	puts int
}

// through returns the URL of a bucket, by way of the proxy.
func (p *proxy) through(t *testing.T, at string) string {
	t.Helper()
	u, err := url.Parse(at)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{}
	forward := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: "http", Host: u.Host})
			r.Out.Host = r.In.Host // it is signed
		},
		Transport: transport,
		ModifyResponse: func(r *http.Response) error {
			if r.Request.Method == http.MethodPut && p.cuts() {
				panic(http.ErrAbortHandler) // how net/http is told to close the connection without an answer
			}
			return nil
		},
	}
	server := httptest.NewServer(forward)
	t.Cleanup(func() { server.Close(); transport.CloseIdleConnections() })
	via := *u
	via.Host = strings.TrimPrefix(server.URL, "http://")
	return via.String()
}

func (p *proxy) cuts() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.puts++
	return p.cut != nil && p.cut(p.puts)
}

func (p *proxy) sent() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.puts
}

// fake is a store in memory that can be told to be wrong. As it is, it keeps the conditions of a PUT.
type fake struct {
	ignoreMatch, ignoreNoneMatch bool
	noETag                       bool
	changes                      bool // what is written
	status                       int  // of every PUT, if set
	apart                        int  // so many PUTs look at the condition before the first of them writes

	mu      sync.Mutex
	objects map[string]string
	puts    int
	looked  int
	all     chan struct{} // closed when all have looked
}

// serve returns the URL of a bucket on the fake.
func (f *fake) serve(t *testing.T) string {
	t.Helper()
	f.objects, f.all = map[string]string{}, make(chan struct{})
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	return strings.Replace(server.URL, "http://", "http://key:secretsecret@", 1) + "/bucket"
}

func etagOf(content string) string {
	sum := md5.Sum([]byte(content))
	return `"` + hex.EncodeToString(sum[:]) + `"`
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.Method {
	case http.MethodPut:
		f.put(w, r)
	case http.MethodDelete:
		w.WriteHeader(http.StatusNoContent)
	default:
		f.mu.Lock()
		content, ok := f.objects[r.URL.Path]
		f.mu.Unlock()
		if !ok {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		w.Header().Set("Last-Modified", time.Unix(0, 0).UTC().Format(http.TimeFormat))
		if !f.noETag {
			w.Header().Set("ETag", etagOf(content))
		}
		_, _ = io.WriteString(w, content)
	}
}

func (f *fake) put(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.puts++
	if f.status != 0 {
		w.WriteHeader(f.status)
		return
	}
	old, ok := f.objects[r.URL.Path]
	match, none := r.Header.Get("If-Match"), r.Header.Get("If-None-Match")
	if match != "" && !f.ignoreMatch && (!ok || match != etagOf(old)) || none == "*" && !f.ignoreNoneMatch && ok {
		w.WriteHeader(http.StatusPreconditionFailed)
		return
	}
	if f.apart > 0 && strings.HasPrefix(string(body), "racer") {
		if f.looked++; f.looked == f.apart {
			close(f.all)
		}
		f.mu.Unlock()
		<-f.all
		f.mu.Lock()
	}
	if f.changes {
		body = append(body, '\n')
	}
	f.objects[r.URL.Path] = string(body)
	w.Header().Set("ETag", etagOf(string(body)))
}

func (f *fake) sent() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.puts
}
