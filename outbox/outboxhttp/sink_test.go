package outboxhttp_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tenure-go/tenure/lease"
	"github.com/tenure-go/tenure/outbox"
	"github.com/tenure-go/tenure/outbox/outboxhttp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func secret(b byte) []byte { return bytes.Repeat([]byte{b}, 32) }

func deliveries(texts ...string) (all []outbox.Delivery) {
	for i, text := range texts {
		all = append(all, outbox.Delivery{Message: outbox.Message{ID: lease.NewID(), Topic: "t", Key: text[:1], Ordered: true, Payload: []byte(text)}, Position: int64(i + 1)})
	}
	return all
}

// sinkTo is a sink to a service on a socket of its own.
func sinkTo(t *testing.T, o outboxhttp.Options, h http.HandlerFunc) *outboxhttp.Sink {
	t.Helper()
	service := httptest.NewServer(h)
	transport := &http.Transport{}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		service.CloseClientConnections()
		service.Close()
	})
	o.URL, o.Transport = service.URL+"/hook?token=private", transport
	if o.Secrets == nil {
		o.Secrets = [][]byte{secret(1)}
	}
	s, err := outboxhttp.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestDelivers: what is posted is verified by the receiver, has the same id each time, and the order of its key.
func TestDelivers(t *testing.T) {
	var mu sync.Mutex
	var got, ids []string
	verifier := &outboxhttp.Verifier{Secrets: [][]byte{secret(9), secret(2)}} // it knows the new secret already
	s := sinkTo(t, outboxhttp.Options{Secrets: [][]byte{secret(1), secret(2)}}, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		id, failed := verifier.Verify(r.Header, body)
		if err != nil || failed != nil || r.Method != http.MethodPost || r.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%v, %v, %s, %v", err, failed, r.Method, r.Header)
		}
		mu.Lock()
		defer mu.Unlock()
		got, ids = append(got, string(body)), append(ids, id)
		w.WriteHeader(http.StatusNoContent)
	})
	all := deliveries("a1", "b1", "a2", "a3")
	for range 2 {
		if err := errors.Join(s.Publish(t.Context(), all)...); err != nil {
			t.Fatal(err)
		}
	}
	for i := range all {
		if n := len(slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return id != all[i].ID.String() })); n != 2 {
			t.Errorf("%s came %d times under its id", all[i].Payload, n)
		}
	}
	for _, half := range [][]string{got[:4], got[4:]} {
		if a := slices.DeleteFunc(slices.Clone(half), func(text string) bool { return text[0] != 'a' }); !slices.IsSorted(a) {
			t.Errorf("%v", a)
		}
	}
}

// TestAnswers: what each status says of the message, and that no error tells the address or the answer.
func TestAnswers(t *testing.T) {
	const unknown = "unknown"
	for code, want := range map[int]string{200: "", 202: "", 204: "", 301: "outage", 307: "outage", 400: "refused", 401: "outage", 403: "outage", 404: "outage", 405: "outage", 408: unknown, 409: unknown, 410: "refused",
		413: "refused", 415: "refused", 422: "refused", 429: "outage", 500: unknown, 502: unknown, 503: unknown, 504: unknown, 1503: "outage"} {
		var asked atomic.Int32
		s := sinkTo(t, outboxhttp.Options{}, func(w http.ResponseWriter, _ *http.Request) {
			asked.Add(1)
			w.Header().Set("Location", "/elsewhere")
			if code > 1000 {
				w.Header().Set("Retry-After", "7")
			}
			w.WriteHeader(code % 1000)
			_, _ = io.WriteString(w, "private")
		})
		err := s.Publish(t.Context(), deliveries("a1"))[0]
		got := ""
		switch {
		case errors.Is(err, outbox.ErrOutage):
			got = "outage"
		case errors.Is(err, outbox.ErrRefused):
			got = "refused"
		case err != nil:
			got = unknown
		}
		if code > 1000 && outbox.RestOf(err) != 7*time.Second {
			t.Errorf("%d: it asked to be left alone for %v", code, outbox.RestOf(err))
		}
		if got != want || asked.Load() != 1 || err != nil && strings.Contains(err.Error(), "private") {
			t.Errorf("%d: %s, want %s; asked %d times; %v", code, got, want, asked.Load(), err)
		}
	}
}

// TestNothingListens is an outage; what took the request and hung up, or said nothing in time, may have done it.
func TestNothingListens(t *testing.T) {
	var free net.ListenConfig
	l, err := free.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	s, err := outboxhttp.New(outboxhttp.Options{URL: "http://" + address, Secrets: [][]byte{secret(1)}})
	if err != nil {
		t.Fatal(err)
	}
	if errs := s.Publish(t.Context(), deliveries("a1", "a2")); !errors.Is(errs[0], outbox.ErrOutage) || !errors.Is(errs[1], outbox.ErrOutage) {
		t.Errorf("%v", errs)
	}
	var asked atomic.Int32
	hangsUp := sinkTo(t, outboxhttp.Options{}, func(http.ResponseWriter, *http.Request) { asked.Add(1); panic(http.ErrAbortHandler) })
	silent := sinkTo(t, outboxhttp.Options{Timeout: 50 * time.Millisecond}, func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body); <-r.Context().Done() })
	for name, s := range map[string]*outboxhttp.Sink{"hangs up": hangsUp, "silent": silent} {
		if errs := s.Publish(t.Context(), deliveries("a1", "a2")); errs[0] == nil || errors.Is(errs[0], outbox.ErrOutage) || errors.Is(errs[0], outbox.ErrRefused) || !errors.Is(errs[1], outbox.ErrOutage) {
			t.Errorf("%s: %v", name, errs)
		}
	}
	if asked.Load() != 1 {
		t.Errorf("asked %d times", asked.Load())
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if errs := silent.Publish(over, deliveries("a1")); !errors.Is(errs[0], outbox.ErrOutage) {
		t.Errorf("after the end: %v", errs)
	}
}

// TestVerify: the specification's own example, and what is not genuine. A verifier that leaves one of these out believes it.
func TestVerify(t *testing.T) {
	key, err := outboxhttp.Secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	if err != nil {
		t.Fatal(err)
	}
	signedAt := time.Unix(1614265330, 0)
	genuine := func() http.Header {
		return http.Header{"Webhook-Id": {"msg_p5jXN8AQM9LWM0D4loKWxJek"}, "Webhook-Timestamp": {"1614265330"}, "Webhook-Signature": {"v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="}}
	}
	body := `{"test": 2432232314}`
	at := func(now time.Time) *outboxhttp.Verifier {
		return &outboxhttp.Verifier{Secrets: [][]byte{key}, Now: func() time.Time { return now }}
	}
	if id, err := at(signedAt).Verify(genuine(), []byte(body)); err != nil || id != "msg_p5jXN8AQM9LWM0D4loKWxJek" {
		t.Errorf("genuine: %q, %v", id, err)
	}
	for name, c := range map[string]struct {
		change func(h http.Header)
		body   string
		now    time.Duration
		want   error
	}{
		"body":          {func(http.Header) {}, body + " ", 0, outboxhttp.ErrSignature},
		"id":            {func(h http.Header) { h.Set(outboxhttp.HeaderID, "msg_2") }, body, 0, outboxhttp.ErrSignature},
		"time":          {func(h http.Header) { h.Set(outboxhttp.HeaderTimestamp, "1614265331") }, body, 0, outboxhttp.ErrSignature},
		"no id":         {func(h http.Header) { h.Del(outboxhttp.HeaderID) }, body, 0, outboxhttp.ErrSignature},
		"no signature":  {func(h http.Header) { h.Del(outboxhttp.HeaderSignature) }, body, 0, outboxhttp.ErrSignature},
		"version":       {func(h http.Header) { h.Set(outboxhttp.HeaderSignature, "v2"+h.Get(outboxhttp.HeaderSignature)[2:]) }, body, 0, outboxhttp.ErrSignature},
		"empty":         {func(h http.Header) { h.Set(outboxhttp.HeaderSignature, "v1,") }, body, 0, outboxhttp.ErrSignature},
		"two ids":       {func(h http.Header) { h.Add(outboxhttp.HeaderID, "msg_2") }, body, 0, outboxhttp.ErrSignature},
		"old":           {func(http.Header) {}, body, 6 * time.Minute, outboxhttp.ErrTimestamp},
		"ahead":         {func(http.Header) {}, body, -6 * time.Minute, outboxhttp.ErrTimestamp},
		"one of two":    {func(h http.Header) { h.Set(outboxhttp.HeaderSignature, "v1,AAAA "+h.Get(outboxhttp.HeaderSignature)) }, body, 0, nil},
		"still in time": {func(http.Header) {}, body, 5 * time.Minute, nil},
	} {
		h := genuine()
		c.change(h)
		if _, err := at(signedAt.Add(c.now)).Verify(h, []byte(c.body)); !errors.Is(err, c.want) {
			t.Errorf("%s: %v; want %v", name, err, c.want)
		}
	}
}

// TestVerifyCutsOneWay: what was signed under one id is not believed under another, wherever id, time and body are cut.
func TestVerifyCutsOneWay(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	var h http.Header
	s := sinkTo(t, outboxhttp.Options{Now: func() time.Time { return now }}, func(_ http.ResponseWriter, r *http.Request) { h = r.Header.Clone() })
	body := fmt.Sprintf("%d.5", now.Unix())
	if err := s.Publish(t.Context(), deliveries(body))[0]; err != nil {
		t.Fatal(err)
	}
	verifier := &outboxhttp.Verifier{Secrets: [][]byte{secret(1)}}
	if _, err := verifier.Verify(h, []byte(body)); err != nil {
		t.Errorf("genuine: %v", err)
	}
	h.Set(outboxhttp.HeaderID, h.Get(outboxhttp.HeaderID)+"."+h.Get(outboxhttp.HeaderTimestamp))
	if id, err := verifier.Verify(h, []byte("5")); !errors.Is(err, outboxhttp.ErrSignature) {
		t.Errorf("a message that was signed under another id and with another body is believed as %q: %v", id, err)
	}
}

// TestNewRefuses what makes no sense, without telling secrets.
func TestNewRefuses(t *testing.T) {
	good := [][]byte{secret(1)}
	for _, o := range []outboxhttp.Options{{}, {URL: "ftp://a", Secrets: good}, {URL: "http://", Secrets: good}, {URL: "http://u:private@a", Secrets: good}, {URL: "http://a"}, {URL: "http://a", Secrets: [][]byte{secret(1)[:23]}},
		{URL: "http://a", Secrets: good, Concurrency: -1}, {URL: "http://a", Secrets: good, Timeout: time.Millisecond}} {
		if _, err := outboxhttp.New(o); !errors.Is(err, outboxhttp.ErrInvalid) || strings.Contains(err.Error(), "private") {
			t.Errorf("%s: %v", o.URL, err)
		}
	}
	for _, text := range []string{"", "whsec_private!", "whsec_" + base64.StdEncoding.EncodeToString([]byte("short"))} {
		if _, err := outboxhttp.Secret(text); !errors.Is(err, outboxhttp.ErrInvalid) || strings.Contains(fmt.Sprint(err), "private") {
			t.Errorf("%q: %v", text, err)
		}
	}
}
