package fencehttp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/tenure-go/tenure/fence"
)

// TestBadInput: what is no claim to the resource is refused with the right status, and does not reach the service.
func TestBadInput(t *testing.T) {
	t.Parallel()
	good := claimed("orders/7", 7).String()
	for name, c := range map[string]struct {
		path   string
		claims []string
		status int
		code   Code
	}{
		"no claim":                    {"/orders/7", nil, 428, CodeMissing},
		"an empty claim":              {"/orders/7", []string{""}, 400, CodeInvalid},
		"two claims":                  {"/orders/7", []string{good, good}, 400, CodeInvalid},
		"two claims in one header":    {"/orders/7", []string{good + ", " + good}, 400, CodeInvalid},
		"no claim at all":             {"/orders/7", []string{"let me in"}, 400, CodeInvalid},
		"a claim and more":            {"/orders/7", []string{good + " x"}, 400, CodeInvalid},
		"upper case":                  {"/orders/7", []string{strings.ToUpper(good)}, 400, CodeInvalid},
		"a long one":                  {"/orders/7", []string{good + strings.Repeat("a", 100_000)}, 400, CodeInvalid},
		"token 0":                     {"/orders/7", []string{strings.Replace(good, ":7:", ":0:", 1)}, 400, CodeInvalid},
		"a negative token":            {"/orders/7", []string{strings.Replace(good, ":7:", ":-7:", 1)}, 400, CodeInvalid},
		"a token beyond all":          {"/orders/7", []string{strings.Replace(good, ":7:", ":9223372036854775808:", 1)}, 400, CodeInvalid},
		"a claim to another name":     {"/orders/7", []string{claimed("orders/8", 7).String()}, 409, CodeForeign},
		"a claim to a part":           {"/orders/7", []string{claimed("orders", 7).String()}, 409, CodeForeign},
		"another spelling: escape":    {"/orders/%37", []string{good}, 400, CodeResource},
		"another spelling: slashes":   {"/orders//7", []string{good}, 400, CodeResource},
		"another spelling: dots":      {"/orders/8/../7", []string{good}, 400, CodeResource},
		"another spelling: hidden":    {"/orders%2F7", []string{good}, 400, CodeResource},
		"another spelling: backslash": {"/orders%5C7", []string{good}, 400, CodeResource},
		"another spelling: parameter": {"/orders/7;a=b", []string{good}, 400, CodeResource},
		"a control character":         {"/orders/7%0a", []string{good}, 400, CodeResource},
		"a NUL":                       {"/orders/7%00", []string{good}, 400, CodeResource},
		"no UTF-8":                    {"/orders/7%C0%AF", []string{good}, 400, CodeResource},
		"a long path":                 {"/" + strings.Repeat("o", 513), []string{good}, 400, CodeResource},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t, Protect, Options{})
			a := s.post(t.Context(), c.path, "x", c.claims...)
			var p Problem
			if err := json.Unmarshal([]byte(a.body), &p); err != nil {
				t.Fatalf("%+v: %v", a, err)
			}
			if a.status != c.status || p.Status != c.status || p.Code != c.code || CodeOf(a.err) != c.code || p.Detail == "" || p.Title == "" ||
				a.head.Get("Content-Type") != ProblemType {
				t.Errorf("%+v", a)
			}
			if got := s.content(); len(got) > 0 {
				t.Errorf("it reached the service: %q", got)
			}
		})
	}
}

// TestSpellingsOfOneResource: a slash at the end names nothing else, and the first segments may be all that counts.
func TestSpellingsOfOneResource(t *testing.T) {
	for _, c := range []struct {
		segments   int
		path, want string
	}{
		{0, "/orders/7", "orders/7"}, {0, "/orders/7/", "orders/7"}, {0, "/", "/"}, {0, "/a b/é", "a b/é"},
		{2, "/orders/7/items/3", "orders/7"}, {2, "/orders", "orders"}, {1, "/orders/7", "orders"},
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://x"+(&url.URL{Path: c.path}).EscapedPath(), http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if got, protected, err := PathResource(c.segments)(r); got != c.want || !protected || err != nil {
			t.Errorf("%q by %d: %q, %v, %v", c.path, c.segments, got, protected, err)
		}
	}
}

// TestRawHeaders: what a client library would not send. A line break cannot put a second header into a claim, and 10 MB of header
// are not read.
func TestRawHeaders(t *testing.T) {
	t.Parallel()
	good := claimed("r", 7).String()
	for name, c := range map[string]struct {
		headers string
		status  int
	}{
		"good":                     {"Tenure-Claim: " + good + "\r\n", 200},
		"lower case name":          {"tenure-claim: " + good + "\r\n", 200},
		"folded":                   {"Tenure-Claim: " + good + "\r\n x\r\n", 400},
		"bare CR":                  {"Tenure-Claim: " + good + "\rX: y\r\n", 400},
		"another claim by CRLF":    {"Tenure-Claim: " + good + "\r\nTenure-Claim: " + good + "\r\n", 400},
		"NUL":                      {"Tenure-Claim: " + good + "\x00\r\n", 400},
		"blank before the colon":   {"Tenure-Claim : " + good + "\r\n", 400},
		"the escape of a CRLF":     {"Tenure-Claim: " + good + "%0D%0AX:y\r\n", 400},
		"a header of 10 megabytes": {"Tenure-Claim: " + strings.Repeat("a", 10<<20) + "\r\n", 431},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t, Protect, Options{})
			status, err := raw(t.Context(), s.Listener.Addr().String(), "POST /r HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n"+c.headers+"\r\n")
			if err != nil || status != c.status {
				t.Errorf("%d, %v", status, err)
			}
			if got := s.content(); (len(got) > 0) != (c.status == 200) {
				t.Errorf("reached the service: %q", got)
			}
		})
	}
}

// raw sends bytes and returns the status of the answer.
func raw(ctx context.Context, addr, text string) (int, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		_, _ = io.WriteString(conn, text) // a server that has had enough closes
	}()
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0, err
	}
	_ = resp.Body.Close()
	_ = conn.Close()
	<-sent
	return resp.StatusCode, nil
}

// TestSafeRequests: a read passes without a claim; with one it is checked, which enters; and what only looks like a read needs one.
func TestSafeRequests(t *testing.T) {
	t.Parallel()
	s := open(t, Protect, Options{GateOptions: GateOptions{Turns: serializer(t, patience, 1)}})
	get := func(change func(*http.Request), claims ...string) answer {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+"/r", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		r.Header[ClaimHeader] = claims
		change(r)
		return send(r)
	}
	same := func(*http.Request) {}
	if a := get(same); a.status != 200 {
		t.Errorf("a read: %+v", a)
	}
	if a := get(same, claimed("r", 8).String()); a.status != 200 {
		t.Errorf("a read under a claim: %+v", a)
	}
	if a := get(same, claimed("r", 7).String()); a.status != 412 {
		t.Errorf("a read under a stale claim: %+v", a)
	}
	if a := s.post(t.Context(), "/r", "x", claimed("r", 7).String()); a.status != 412 {
		t.Errorf("a write under the claim before the reader's: %+v", a)
	}
	for _, header := range []string{"X-HTTP-Method-Override", "X_HTTP_Method_Override", "X-Method_override", "Upgrade"} {
		if a := get(func(r *http.Request) { r.Header.Set(header, "DELETE") }); a.status != 428 {
			t.Errorf("with %s: %+v", header, a)
		}
	}
}

// TestFullMarks: without room for a new mark a new resource is refused, and none that is there is forgotten.
func TestFullMarks(t *testing.T) {
	t.Parallel()
	marks, err := NewMarks(2)
	if err != nil {
		t.Fatal(err)
	}
	s := open(t, Protect, Options{GateOptions: GateOptions{Check: marks}})
	for _, name := range []string{"a", "b"} {
		if a := s.post(t.Context(), "/"+name, name, claimed(name, 8).String()); a.status != 200 {
			t.Fatalf("%+v", a)
		}
	}
	if a := s.post(t.Context(), "/c", "c", claimed("c", 8).String()); a.status != 503 || !errors.Is(a.err, ErrFull) || a.head.Get("Retry-After") == "" {
		t.Errorf("a third: %+v", a)
	}
	if a := s.post(t.Context(), "/a", "a", claimed("a", 7).String()); a.status != 412 {
		t.Errorf("an old claim to one that is kept: %+v", a)
	}
	if a := s.post(t.Context(), "/b", "b", claimed("b", 9).String()); a.status != 200 {
		t.Errorf("a new claim to one that is kept: %+v", a)
	}
	if _, err := NewMarks(0); !errors.Is(err, ErrOption) {
		t.Errorf("no room: %v", err)
	}
}

// TestTurnEndsWithItsRequest: by a panic, and by its client going away; and a client that goes away while it waits is not served.
func TestTurnEndsWithItsRequest(t *testing.T) {
	t.Parallel()
	s := open(t, Protect, Options{GateOptions: GateOptions{Turns: serializer(t, patience, 4)}})
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+"/r", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set(ClaimHeader, claimed("r", 7).String())
	r.Header.Set("Panic", "yes")
	if a := send(r); a.err == nil {
		t.Errorf("the panic: %+v", a)
	}
	proceed := s.hold(8)
	defer proceed()
	working, leave := context.WithCancel(t.Context())
	first := s.later(working, "first", claimed("r", 8))
	for _, token := range []fence.Token{7, 8} {
		if err := s.begins(token); err != nil {
			t.Fatal(err)
		}
	}
	waiting, leaveToo := context.WithCancel(t.Context())
	second := s.later(waiting, "second", claimed("r", 10))
	if waits, err := s.settles(1); err != nil || !waits {
		t.Fatal(waits, err)
	}
	third := s.later(t.Context(), "third", claimed("r", 9))
	if waits, err := s.settles(2); err != nil || !waits {
		t.Fatal(waits, err)
	}
	leaveToo()
	<-second
	for _, waiting := s.turns.Busy(); waiting > 1; _, waiting = s.turns.Busy() { // the server notices in its own time
		select {
		case <-t.Context().Done():
			t.Fatal("who went away still waits")
		case <-time.After(time.Millisecond):
		}
	}
	leave()
	<-first
	if a := <-third; a.status != 200 {
		t.Errorf("who waited behind those that went: %+v", a)
	}
	if got := fmt.Sprint(s.content()); got != "[third]" {
		t.Errorf("content: %s", got)
	}
}

// TestWaitersAreBounded: who waits too long, and who comes when too many wait, is told when to come again.
func TestWaitersAreBounded(t *testing.T) {
	t.Parallel()
	s := open(t, Protect, Options{GateOptions: GateOptions{Turns: serializer(t, 500*time.Millisecond, 1)}})
	proceed := s.hold(7)
	first := s.later(t.Context(), "first", claimed("r", 7))
	if err := s.begins(7); err != nil {
		t.Fatal(err)
	}
	second := s.later(t.Context(), "second", claimed("r", 8))
	if waits, err := s.settles(1); err != nil || !waits {
		t.Fatal(waits, err)
	}
	third := s.post(t.Context(), "/r", "third", claimed("r", 8).String())
	for name, a := range map[string]answer{"too many": third, "too long": <-second} {
		var busy *BusyError
		if a.status != 503 || a.head.Get("Retry-After") != "1" || !errors.As(a.err, &busy) || busy.After != time.Second {
			t.Errorf("%s: %+v", name, a)
		}
	}
	proceed()
	if a := <-first; a.status != 200 {
		t.Errorf("%+v", a)
	}
}

// TestErrorsSurviveTheWire: each refusal is the same error on the other side, and nothing else is taken for one.
func TestErrorsSurviveTheWire(t *testing.T) {
	claim := claimed("r", 7)
	for _, want := range []error{
		&fence.RefusedError{Resource: "r", Claim: claim, Why: fence.Expired},
		&fence.RefusedError{Resource: "r", Claim: claim, Why: fence.Superseded, Newer: 1 << 60},
		&fence.ForeignError{Resource: "r", Claim: claim, Authority: fence.ID{9}, Name: "other"},
		&fence.AheadError{Claim: claim, Issued: 5},
		&MissingError{Resource: "r"},
		&BusyError{Resource: "r", Why: "3 wait already", After: time.Second},
		&ResourceError{Problem: "it names none"},
		&fence.InvalidError{What: "token", Problem: "want decimal digits: 1 to 9"},
		&UnavailableError{Err: errUnanswered},
	} {
		body, err := json.Marshal(ProblemOf("r", want))
		if err != nil {
			t.Fatal(err)
		}
		var p Problem
		if err := json.Unmarshal(body, &p); err != nil {
			t.Fatal(err)
		}
		if got := p.Err(claim); got == nil || got.Error() != want.Error() || CodeOf(got) != CodeOf(want) {
			t.Errorf("%s became %v, not %v", body, got, want)
		}
		sent := ProblemOf("r", want)
		p, ok := ProblemFrom(ReasonDomain, sent.Code.Reason(), sent.Detail, sent.Facts(), sent.After())
		if got := p.Err(claim); !ok || got.Error() != want.Error() || CodeOf(got) != CodeOf(want) || p.After() != sent.After() {
			t.Errorf("%+v, told as facts, became %v, not %v", sent, got, want)
		}
	}
	if _, ok := ProblemFrom("elsewhere.example", "CLAIM_REFUSED", "", nil, 0); ok {
		t.Error("somebody else's reason passes for one of this package's")
	}
	if _, ok := ProblemFrom(ReasonDomain, "CLAIM_ODD", "", nil, 0); ok {
		t.Error("an unknown reason passes for one that is known")
	}
	for name, resp := range map[string]*http.Response{
		"another 412":       {StatusCode: 412, Header: http.Header{}},
		"another problem":   {StatusCode: 412, Header: http.Header{"Content-Type": {ProblemType}}, Body: io.NopCloser(strings.NewReader(`{"type":"about:blank","status":412}`))},
		"no JSON":           {StatusCode: 412, Header: http.Header{"Content-Type": {ProblemType}}, Body: io.NopCloser(strings.NewReader(`<html>`))},
		"another status":    {StatusCode: 200, Header: http.Header{"Content-Type": {ProblemType}}, Body: io.NopCloser(bytes.NewReader(mustJSON(t, ProblemOf("r", ErrFull))))},
		"an unknown code":   {StatusCode: 412, Header: http.Header{"Content-Type": {ProblemType}}, Body: io.NopCloser(strings.NewReader(`{"type":"` + problemBase + `odd","code":"odd","status":412}`))},
		"more than it says": {StatusCode: 412, Header: http.Header{"Content-Type": {ProblemType}}, Body: io.NopCloser(strings.NewReader(strings.Repeat(" ", maxProblem+5)))},
	} {
		if err := ErrorOf(resp); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if name == "more than it says" {
			if rest, err := io.ReadAll(resp.Body); len(rest) != maxProblem+5 || err != nil {
				t.Errorf("%d bytes can be read afterwards, %v", len(rest), err)
			}
		}
	}
}

func mustJSON(t *testing.T, v any) []byte {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// FuzzPathResource: where a path is accepted, a server that decodes and cleans it acts on the resource that was checked.
func FuzzPathResource(f *testing.F) {
	for _, seed := range []string{"/orders/7", "/orders/%37", "/a//b", "/a/./b/..", "/%2e%2e/a", "/a%2Fb", "/a;b", "/é", "//", "/", "/a/", "*", "/%", "/a?b#c", "/\x00", "http:http://s/orders/7", "http:a"} {
		f.Add(seed, 0)
		f.Add(seed, 2)
	}
	f.Fuzz(func(t *testing.T, raw string, segments int) {
		u, err := url.ParseRequestURI(raw)
		if err != nil {
			return
		}
		got, protected, err := PathResource(segments)(&http.Request{Method: http.MethodPut, URL: u, Header: http.Header{}})
		if !protected {
			t.Fatal("a PUT is not protected")
		}
		if err != nil {
			if !errors.Is(err, ErrResource) {
				t.Fatal(err)
			}
			return
		}
		// A proxy writes the target anew.
		if passed, err := url.ParseRequestURI(u.RequestURI()); err != nil || passed.Path != u.Path && passed.Path != u.Path+"/" {
			t.Fatalf("%q is taken for %q, and passed on as %q", raw, got, u.RequestURI())
		}
		cleaned := strings.Split(strings.Trim(path.Clean("/"+u.Path), "/"), "/")
		if segments > 0 && len(cleaned) > segments {
			cleaned = cleaned[:segments]
		}
		if want := strings.Join(cleaned, "/"); got != want && (got != "/" || want != "") {
			t.Fatalf("%q is taken for %q, and a server may act on %q", raw, got, want)
		}
	})
}
