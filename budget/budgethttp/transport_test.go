package budgethttp

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/tenure-go/tenure/budget"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// service is a handler on a real socket, over HTTP/1.1 or HTTP/2, and a client whose transport classifies.
func service(t *testing.T, http2 bool, handler http.Handler) (client *http.Client, url string) {
	t.Helper()
	server := httptest.NewUnstartedServer(handler)
	server.EnableHTTP2 = http2
	if http2 {
		server.StartTLS()
	} else {
		server.Start()
	}
	t.Cleanup(server.Close)
	base := server.Client().Transport
	t.Cleanup(server.Client().CloseIdleConnections)
	return &http.Client{Transport: &Transport{Base: base}}, server.URL
}

func post(ctx context.Context, client *http.Client, url string, body io.Reader) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, body)
	if err != nil {
		return nil, err
	}
	return client.Do(req)
}

// ask is a request as a layer makes it: an error, classified, unless the answer is a success.
func ask(ctx context.Context, client *http.Client, url string) error {
	resp, err := post(ctx, client, url, http.NoBody)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if err := ErrorOf(resp); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

// closed is a body that knows whether it was closed.
type closed struct {
	io.Reader
	is atomic.Bool
}

func (c *closed) Close() error { c.is.Store(true); return nil }

// TestWhatIsSent: the remaining time and the attempt, in place of what the caller's headers say, which stay as they are; over both protocols.
func TestWhatIsSent(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprint("http2 ", http2), func(t *testing.T) {
			got := make(chan *http.Request, 1)
			client, url := service(t, http2, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got <- r }))
			b, err := budget.Start(t.Context(), 20*time.Second, budget.Reserve(10*time.Second))
			if err != nil {
				t.Fatal(err)
			}
			defer b.End()
			header := http.Header{budget.HeaderRemaining: {"7", "8"}, budget.HeaderAttempt: {"9"}, "Own": {"x"}}
			err = budget.Do(b.Context(), budget.Policy{}, func(ctx context.Context) error {
				req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
				if err != nil {
					return err
				}
				req.Header = header
				resp, err := client.Do(req)
				if err != nil {
					return err
				}
				return resp.Body.Close()
			})
			if err != nil {
				t.Fatal(err)
			}
			r := <-got
			millis, err := strconv.Atoi(r.Header.Get(budget.HeaderRemaining))
			if err != nil || millis > 10_000 || millis < 1 || len(r.Header.Values(budget.HeaderRemaining)) != 1 || r.Header.Get(budget.HeaderAttempt) != "1" || r.Header.Get("Own") != "x" {
				t.Errorf("sent: %v, %v", r.Header, err)
			}
			if (r.ProtoMajor == 2) != http2 {
				t.Errorf("over %s", r.Proto)
			}
			if len(header) != 3 || header.Get(budget.HeaderAttempt) != "9" || len(header[budget.HeaderRemaining]) != 2 {
				t.Errorf("the caller's headers are changed: %v", header)
			}
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody) // no deadline, and no attempt of a Do
			if err != nil {
				t.Fatal(err)
			}
			req.Header = header
			if resp, err := client.Do(req); err != nil || resp.Body.Close() != nil {
				t.Error(err)
			} else if r := <-got; len(r.Header.Values(budget.HeaderRemaining))+len(r.Header.Values(budget.HeaderAttempt)) != 0 {
				t.Errorf("nothing is known, and this is sent: %v", r.Header)
			}
		})
	}
}

// TestTooLittleIsNotSent: the service sees nothing of a request with less than a millisecond left, or whose caller has gone, and its body is closed.
func TestTooLittleIsNotSent(t *testing.T) {
	var seen atomic.Int32
	client, url := service(t, false, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { seen.Add(1) }))
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	late, end := context.WithDeadline(t.Context(), time.Now().Add(500*time.Microsecond))
	defer end()
	over, endOver := context.WithTimeout(t.Context(), -1)
	defer endOver()
	for name, ctx := range map[string]context.Context{"gone": gone, "late": late, "over": over} {
		body := &closed{Reader: strings.NewReader("x")}
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, body)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Transport.RoundTrip(req)
		if err == nil {
			resp.Body.Close()
		}
		if budget.ClassOf(err) != budget.NotSent || !body.is.Load() {
			t.Errorf("%s: %v, body closed %v", name, err, body.is.Load())
		}
		if name == "gone" && !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if seen.Load() != 0 {
		t.Errorf("the service has seen %d", seen.Load())
	}
}

// borrowed is a body whose reading fails with what is known of another request.
type borrowed struct {
	sent bool
	err  error
}

func (b *borrowed) Read(p []byte) (int, error) {
	if !b.sent {
		b.sent = true
		return copy(p, strings.Repeat("x", 64)), nil
	}
	return 0, b.err
}

// TestAnotherRequestsClassIsNotThisOnes: a body that is another request's answer fails with that one's class; this request was sent all the same.
func TestAnotherRequestsClassIsNotThisOnes(t *testing.T) {
	began := make(chan struct{}, 2)
	client, url := service(t, false, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		began <- struct{}{}
		_, _ = io.Copy(io.Discard, r.Body)
	}))
	unsent := &budget.Error{Class: budget.NotSent, Err: context.DeadlineExceeded}
	for name, other := range map[string]error{"failed": unsent, "given up": &budget.GaveUpError{Why: budget.ErrAttempts, Last: unsent, Real: unsent, Class: budget.NotSent, Attempts: 3}} {
		resp, err := post(t.Context(), client, url, io.MultiReader(strings.NewReader(strings.Repeat("x", 8<<10)), &borrowed{err: other}))
		if err == nil {
			resp.Body.Close()
		}
		<-began // the service has it
		if budget.ClassOf(err) != budget.Unknown || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestKnownWaits: for a request that is under way, and not for ever.
func TestKnownWaits(t *testing.T) {
	for name, c := range map[string]struct {
		takes time.Duration
		class budget.Class
	}{"soon": {500 * time.Millisecond, budget.NotSent}, "too late": {2 * time.Second, budget.Unknown}} {
		synctest.Test(t, func(t *testing.T) {
			ctx, seen := Observe(t.Context())
			transport := &Transport{Base: roundTrip(func(r *http.Request) (*http.Response, error) {
				httptrace.ContextClientTrace(r.Context()).GetConn("")
				<-time.After(c.takes)
				return nil, context.Canceled
			})}
			over := make(chan struct{})
			go func() {
				defer close(over)
				resp, err := transport.RoundTrip(httptest.NewRequestWithContext(ctx, http.MethodPost, "http://x.test/", http.NoBody))
				if err == nil {
					resp.Body.Close()
				}
			}()
			synctest.Wait()
			if class, _ := seen.Known(); class != c.class {
				t.Errorf("%s: %v", name, class)
			}
			<-over
		})
	}
}

// TestAnObservedRequestIsWaitedFor: while a request is under way it may still be sent, also when its context has ended; who looks at once would say that it was not.
func TestAnObservedRequestIsWaitedFor(t *testing.T) {
	var served atomic.Int32
	proceed, dialling := make(chan struct{}), make(chan struct{})
	client, url := service(t, false, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served.Add(1) }))
	sends := &http.Client{Transport: &Transport{Base: roundTrip(func(r *http.Request) (*http.Response, error) {
		httptrace.ContextClientTrace(r.Context()).GetConn("") // as far as a transport has come when the context ends
		close(dialling)
		<-proceed
		return client.Transport.RoundTrip(r.WithContext(context.WithoutCancel(r.Context()))) // and sends all the same
	})}}
	ctx, cancel := context.WithCancel(t.Context())
	ctx, seen := Observe(ctx)
	if class, _ := seen.Known(); class != budget.Unknown {
		t.Errorf("nothing was observed: %v", class)
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		_ = ask(ctx, sends, url) // its caller has gone
	}()
	<-dialling
	cancel()
	known := make(chan budget.Class, 1)
	go func() { class, _ := seen.Known(); known <- class }()
	close(proceed)
	if class := <-known; class != budget.Unknown {
		t.Errorf("it was sent, and is %v", class)
	}
	<-over
	if served.Load() != 1 {
		t.Errorf("served %d times", served.Load())
	}
	again, seen := Observe(t.Context())
	if err := ask(again, client, "http://127.0.0.1:0"); err == nil {
		t.Error("port 0 answers")
	}
	if class, phase := seen.Known(); class != budget.NotSent || phase != budget.PhaseConnect {
		t.Errorf("it was not sent, and is %v (%s)", class, phase)
	}
}

// roundTrip is a transport that says nothing to httptrace.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestSilentBaseIsUnknown: who sends without telling httptrace may have sent.
func TestSilentBaseIsUnknown(t *testing.T) {
	transport := &Transport{Base: roundTrip(func(*http.Request) (*http.Response, error) { return nil, context.DeadlineExceeded })}
	resp, err := transport.RoundTrip(httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://x.test/", http.NoBody))
	if err == nil {
		resp.Body.Close()
	}
	var known *budget.Error
	if !errors.As(err, &known) || known.Class != budget.Unknown || known.Phase != "" {
		t.Errorf("%v", err)
	}
}

// TestNoBodyOfABase: net/http makes an empty body where a Base has left it out; the transport does not hide that it has.
func TestNoBodyOfABase(t *testing.T) {
	client := &http.Client{Transport: &Transport{Base: roundTrip(func(*http.Request) (*http.Response, error) { return &http.Response{StatusCode: http.StatusOK}, nil })}}
	req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://x.test/", http.NoBody)
	req.RequestURI = ""
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if got, err := io.ReadAll(resp.Body); len(got) > 0 || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

// TestRedirections: what follows a redirection proves nothing of the request that was redirected, unless it was told to ask elsewhere.
func TestRedirections(t *testing.T) {
	var done atomic.Int32
	var code atomic.Int32
	refused, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	refused.Close() // nobody listens there any more
	mux := http.NewServeMux()
	mux.HandleFunc("/pay/nowhere", func(w http.ResponseWriter, r *http.Request) {
		done.Add(1)
		http.Redirect(w, r, "http://"+refused.Addr().String(), int(code.Load()))
	})
	mux.HandleFunc("/pay/gone", func(w http.ResponseWriter, r *http.Request) {
		done.Add(1)
		http.Redirect(w, r, "/gone", int(code.Load()))
	})
	mux.HandleFunc("/gone", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusGone) })
	client, url := service(t, false, mux)
	for status, want := range map[int][2]budget.Class{
		http.StatusSeeOther: {budget.Unknown, budget.Unknown}, http.StatusFound: {budget.Unknown, budget.Unknown}, http.StatusMovedPermanently: {budget.Unknown, budget.Unknown},
		http.StatusTemporaryRedirect: {budget.NotSent, budget.Refused}, http.StatusPermanentRedirect: {budget.NotSent, budget.Refused},
	} {
		code.Store(int32(status))
		for i, path := range []string{"/pay/nowhere", "/pay/gone"} {
			if err := ask(t.Context(), client, url+path); budget.ClassOf(err) != want[i] {
				t.Errorf("%d %s: %v", status, path, err)
			}
		}
	}
	if done.Load() != 10 {
		t.Errorf("%d requests were served", done.Load())
	}
	gone, cancel := context.WithCancel(t.Context())
	code.Store(http.StatusSeeOther)
	client.CheckRedirect = func(*http.Request, []*http.Request) error { cancel(); return nil }
	if err := ask(gone, client, url+"/pay/gone"); budget.ClassOf(err) != budget.Unknown || !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled between the two: %v", err)
	}
}

// TestSwitchedConnection: after 101 the body is the connection, and can be written.
func TestSwitchedConnection(t *testing.T) {
	client, url := service(t, false, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		fmt.Fprint(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		_ = rw.Flush()
		line, _ := rw.ReadString('\n')
		fmt.Fprint(rw, line)
		_ = rw.Flush()
	}))
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Header = http.Header{"Connection": {"Upgrade"}, "Upgrade": {"echo"}}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	conn, ok := resp.Body.(io.ReadWriter)
	if !ok {
		t.Fatal("the connection cannot be written")
	}
	fmt.Fprintln(conn, "hello")
	if line, err := bufio.NewReader(conn).ReadString('\n'); line != "hello\n" || err != nil {
		t.Errorf("%q, %v", line, err)
	}
}

// stub answers at once.
type stub struct{ resp http.Response }

func (s *stub) RoundTrip(*http.Request) (*http.Response, error) {
	resp := s.resp
	return &resp, nil
}

// BenchmarkTransport compares a transport that answers at once with the same below ours: a request with a deadline and an attempt number.
func BenchmarkTransport(b *testing.B) {
	base := &stub{http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Header: http.Header{}}}
	outer, err := budget.Start(b.Context(), time.Hour)
	if err != nil {
		b.Fatal(err)
	}
	defer outer.End()
	err = budget.Do(outer.Context(), budget.Policy{}, func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://x.test/", http.NoBody)
		if err != nil {
			return err
		}
		req.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json"}, "Authorization": {"Bearer x"}, "Idempotency-Key": {"y"}}
		for name, t := range map[string]http.RoundTripper{"base": base, "classified": &Transport{Base: base}} {
			b.Run(name, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					resp, err := t.RoundTrip(req)
					if err != nil || resp.Body.Close() != nil {
						b.Fatal(err)
					}
				}
			})
		}
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
}
