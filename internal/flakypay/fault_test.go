package flakypay

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// faultCase is what a client and the ledger see of a named fault.
type faultCase struct {
	status   int   // 0: no answer
	err      error // of no answer; nil: any
	effects  int64
	delivery Delivery // of the first answer; 0: there is none
	retry    string   // Retry-After
	again    int      // status of the same request without a fault
	total    int64    // effects after that
}

func faultCases() map[string]faultCase {
	return map[string]faultCase{
		"lost":          {err: syscall.ECONNRESET, effects: 1, delivery: NotWritten, again: 201, total: 1},
		"lost-closed":   {err: io.EOF, effects: 1, delivery: NotWritten, again: 201, total: 1},
		"lost-half":     {status: 201, err: io.ErrUnexpectedEOF, effects: 1, delivery: NotWritten, again: 201, total: 1},
		"lost-silent":   {err: context.Canceled, effects: 1, delivery: NotWritten, again: 201, total: 1},
		"late":          {status: 201, effects: 1, delivery: Written, again: 201, total: 1},
		"late-webhook":  {err: syscall.ECONNRESET, effects: 1, delivery: NotWritten, again: 201, total: 1},
		"twice":         {status: 201, effects: 1, delivery: Written, again: 201, total: 1},
		"refused":       {status: 402, delivery: Written, again: 201, total: 1},
		"refused-final": {status: 402, delivery: Written, again: 402},
		"throttled":     {status: 429, delivery: Written, retry: "1", again: 201, total: 1},
		"unavailable":   {status: 503, delivery: Written, retry: "1", again: 201, total: 1},
		"slow":          {status: 201, effects: 1, delivery: Written, again: 201, total: 1},
		"down":          {err: syscall.ECONNRESET, again: 201, total: 1},
		"silent":        {err: context.Canceled, again: 201, total: 1},
		"forget":        {status: 201, effects: 1, delivery: Written, again: 201, total: 2},
	}
}

// Each named fault, chosen by the script, on a connection of its own.
func TestEveryFault(t *testing.T) {
	cases := faultCases()
	for _, name := range Names() {
		t.Run(name, func(t *testing.T) {
			c, ok := cases[name]
			if !ok {
				t.Fatal("no case")
			}
			f, _ := Named(name)
			g := begin(t, Config{Webhook: func(context.Context, Notice) error { return nil }, Forget: Forget{ByFault: name == "forget"}, Script: func(call Call) Fault {
				if call.Nth == 1 {
					return f
				}
				return Fault{}
			}}, rules{})
			c.check(t, g, name)
		})
	}
}

func (c faultCase) check(t *testing.T, g *rig, name string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	answer := make(chan got, 1)
	go func() { answer <- g.charge(ctx, "k", 5, HeaderAttempt, "3") }()
	if errors.Is(c.err, context.Canceled) { // the client gives up, when the provider has done what it will
		want := func(e Entry) bool {
			return len(e.Requests) == 1 && (c.delivery == 0 || len(e.Answers) == 1)
		}
		if err := awaitDelivery(ctx, g.Ledger(), "k", want); err != nil {
			t.Fatal(err)
		}
		cancel()
	}
	out := <-answer
	if out.status != c.status || c.err == nil != (out.err == nil) || c.err != nil && !errors.Is(out.err, c.err) {
		t.Errorf("the client got %d, %v; want %d, %v", out.status, out.err, c.status, c.err)
	}
	if out.status != 0 && out.header.Get("Retry-After") != c.retry {
		t.Errorf("Retry-After is %q", out.header.Get("Retry-After"))
	}
	settled := func(e Entry) bool { return len(e.Answers) == 0 || e.Answers[0].Delivery != Sending }
	if err := awaitDelivery(t.Context(), g.Ledger(), "k", settled); err != nil {
		t.Fatal(err)
	}
	e := g.Ledger().Entry(Charge, "k")
	if e.Tally.Effects != c.effects || e.Tally.Requests != 1 || e.Requests[0].Fault != name || e.Requests[0].Attempt != "3" {
		t.Errorf("%+v", e)
	}
	if c.delivery == 0 && len(e.Answers) > 0 || c.delivery > 0 && e.Answers[0].Delivery != c.delivery {
		t.Errorf("answers: %+v", e.Answers)
	}
	if again := g.charge(t.Context(), "k", 5); again.status != c.again {
		t.Errorf("again: %+v", again)
	}
	if total := g.Ledger().Tally(Charge, "k").Effects; total != c.total || len(g.Ledger().Doubles()) > 0 != (total > 1) {
		t.Errorf("%d effects in all", total)
	}
}

// What is asked by a header is heeded where the configuration says so; what cannot be is answered 400, without an effect.
func TestFaultByHeader(t *testing.T) {
	ctx := t.Context()
	g := begin(t, Config{HeaderFaults: true}, rules{})
	for _, bad := range []string{"what", "late; after_ms=x", "late; after=1", "late; after_ms=-1", "forget", "twice", "none; webhooks=1"} {
		if out := g.charge(ctx, "bad", 5, HeaderFault, bad); out.status != 400 || g.Ledger().Tally(Charge, "bad").Effects != 0 {
			t.Errorf("%q: %d %s", bad, out.status, out.body)
		}
	}
	if out := g.charge(ctx, "k", 5, HeaderFault, "refused"); out.status != 402 {
		t.Errorf("%+v", out)
	}
	g = begin(t, Config{}, rules{})
	if out := g.charge(ctx, "k", 5, HeaderFault, "refused"); out.status != 201 {
		t.Errorf("without HeaderFaults: %+v", out)
	}
}

// A refusal for another reason is given although an earlier request had its effect.
func TestRefusalProvesNothingAboutEarlierRequests(t *testing.T) {
	ctx := t.Context()
	g := begin(t, Config{HeaderFaults: true}, rules{})
	lost, refused := g.charge(ctx, "k", 5, HeaderFault, "lost"), g.charge(ctx, "k", 5, HeaderFault, "throttled")
	if lost.err == nil || refused.status != 429 {
		t.Fatalf("%+v, %+v", lost, refused)
	}
	if tally := g.Ledger().Tally(Charge, "k"); tally.Effects != 1 || tally.Knowable(Sending) {
		t.Errorf("%+v", tally)
	}
}

// What is asked for happens although its client has gone, and after an inquiry that did not observe it: a look alone decides nothing.
func TestRequestLandsAfterItsClientHasGone(t *testing.T) {
	g := begin(t, Config{HeaderFaults: true}, rules{})
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	answer, err := g.started(ctx, "flight", func() got { return g.charge(ctx, "k", 5, HeaderFault, "none; hold_before=flight") })
	if err != nil {
		t.Fatal(err)
	}
	leave()
	if out := <-answer; out.err == nil {
		t.Errorf("%+v", out)
	}
	if looked := g.find(t.Context(), "k"); looked.Finding != NotObserved {
		t.Errorf("%+v", looked)
	}
	if out := g.do(t.Context(), http.MethodPost, "/open?gate=flight", ""); out.status != 200 {
		t.Errorf("%+v", out)
	}
	if err := awaitDelivery(t.Context(), g.Ledger(), "k", func(e Entry) bool { return e.Tally.Effects == 1 }); err != nil {
		t.Fatal(err)
	}
	if looked := g.find(t.Context(), "k"); looked.Finding != Found || looked.Amount != 5 {
		t.Errorf("%+v", looked)
	}
}

// A provider that does not enforce a not-after has its effect after it.
func TestIgnoredNotAfter(t *testing.T) {
	for _, ignores := range []bool{false, true} {
		g := begin(t, Config{IgnoresNotAfter: ignores}, rules{})
		out := g.charge(t.Context(), "k", 5, HeaderNotAfter, "1")
		if out.status != map[bool]int{false: 402, true: 201}[ignores] || g.Ledger().Tally(Charge, "k").Effects == 1 != ignores {
			t.Errorf("ignores %t: %+v", ignores, out)
		}
	}
}

// Delays go by the provider's clock.
func TestDelaysByTheClock(t *testing.T) {
	clock := new(ManualClock)
	g := begin(t, Config{Clock: clock, HeaderFaults: true}, rules{})
	answer := make(chan got, 1)
	go func() {
		answer <- g.charge(t.Context(), "k", 5, HeaderFault, "none; before_ms=3600000; after_ms=60000")
	}()
	for _, step := range []struct {
		by      time.Duration
		effects int64
	}{{time.Hour, 0}, {time.Minute, 1}} {
		if err := awaitDelivery(t.Context(), g.Ledger(), "k", func(Entry) bool { return clock.Waiting() == 1 }); err != nil {
			t.Fatal(err)
		}
		if tally := g.Ledger().Tally(Charge, "k"); tally.Effects != step.effects {
			t.Errorf("before %v: %+v", step.by, tally)
		}
		clock.Advance(step.by - 1)
		if clock.Waiting() != 1 {
			t.Errorf("%v have passed too early", step.by)
		}
		clock.Advance(1)
	}
	if out := <-answer; out.status != 201 {
		t.Errorf("%+v", out)
	}
}

// Down refuses connections, or accepts and never answers; Up is at the same address.
func TestDownAndUp(t *testing.T) {
	g := begin(t, Config{}, rules{})
	ctx := t.Context()
	if out := g.charge(ctx, "k", 5); out.status != 201 {
		t.Fatalf("%+v", out)
	}
	for _, silent := range []string{"a", "b", "c"} {
		if err := g.Down(Refusing); err != nil {
			t.Fatal(err)
		}
		if out := g.charge(ctx, "refusing", 5); out.err == nil {
			t.Errorf("while it refuses: %+v", out)
		}
		if out := g.charge(ctx, "refusing", 5); !errors.Is(out.err, syscall.ECONNREFUSED) {
			t.Errorf("while it refuses: %+v", out)
		}
		if err := g.Up(ctx); err != nil {
			t.Fatal(err)
		}
		if err := g.Down(Silent); err != nil {
			t.Fatal(err)
		}
		answer := make(chan got, 1)
		go func() { answer <- g.charge(ctx, silent, 5) }()
		if err := awaitDelivery(ctx, g.Ledger(), silent, func(e Entry) bool { return e.Tally.Requests > 0 }); err != nil {
			t.Fatal(err)
		}
		if err := g.Up(ctx); err != nil {
			t.Fatal(err)
		}
		if out := <-answer; !errors.Is(out.err, syscall.ECONNRESET) {
			t.Errorf("after it was silent: %+v", out)
		}
	}
	for _, key := range []string{"refusing", "a", "b", "c"} {
		if n := g.Ledger().Tally(Charge, key).Effects; n != 0 {
			t.Errorf("%s: %d effects", key, n)
		}
		if out := g.charge(ctx, key, 5); out.status != 201 {
			t.Errorf("%s, up: %+v", key, out)
		}
	}
}

// Keys are forgotten at once, after requests, or after a time; the ledger forgets none of it.
func TestForgetting(t *testing.T) {
	ctx, clock := t.Context(), new(ManualClock)
	for name, c := range map[string]struct {
		forget Forget
		until  func(g *rig)
		kept   bool // at first
	}{
		"at once":        {Forget{AtOnce: true}, func(*rig) {}, false},
		"after requests": {Forget{AfterRequests: 4}, func(g *rig) { g.charge(ctx, "other", 1) }, true},
		"after a time":   {Forget{After: time.Hour}, func(*rig) { clock.Advance(time.Hour) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			g := begin(t, Config{Forget: c.forget, Clock: clock}, rules{})
			first := g.charge(ctx, "k", 5)
			if c.kept {
				if found, again := g.find(ctx, "k"), g.charge(ctx, "k", 5); found.Finding != Found || found.ID != first.ID || again.ID != first.ID {
					t.Errorf("kept: %+v, %+v", found, again)
				}
			}
			c.until(g)
			found := g.find(ctx, "k")
			again := g.charge(ctx, "k", 6) // the body is forgotten as well
			if found.Finding != NotObserved || again.status != 201 || again.ID == first.ID {
				t.Errorf("forgotten: %+v, %+v", found, again)
			}
			if d := g.Ledger().Doubles(); len(d) != 1 || d[0].Effects != 2 || d[0].Amount != 11 {
				t.Errorf("%+v", d)
			}
		})
	}
}

// A webhook is tried until it is acknowledged, and the ledger says what became of it.
func TestWebhooks(t *testing.T) {
	var calls atomic.Int64
	notices := make(chan string, 16)
	hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		notices <- string(body)
		if calls.Add(1) == 1 {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	defer hook.Close()
	g := begin(t, Config{WebhookURL: hook.URL, HeaderFaults: true}, rules{})
	ctx := t.Context()
	if out := g.charge(ctx, "k", 5, HeaderFault, "late-webhook", HeaderAttempt, "2"); out.err == nil {
		t.Errorf("%+v", out)
	}
	for range 2 { // the same twice
		if n := <-notices; n != `{"op":"charge","key":"k","attempt":"2","answer":2,"status":201,"reply":{"id":"ch_1","amount":5}}` {
			t.Errorf("%s", n)
		}
	}
	if err := awaitDelivery(ctx, g.Ledger(), "k", func(e Entry) bool { return e.EffectTold == Acknowledged }); err != nil {
		t.Fatal(err)
	}
	hook.Close() // nobody is there
	g.charge(ctx, "l", 5, HeaderFault, "late-webhook")
	ended := func(e Entry) bool {
		return len(e.Answers) == 2 && e.Answers[1].Way == Webhook && e.Answers[1].Delivery == NotWritten
	}
	if err := awaitDelivery(ctx, g.Ledger(), "l", ended); err != nil {
		t.Fatal(err)
	}
	if lost := g.Ledger().Unknowable(Sending); len(lost) != 1 || lost[0].Key != "l" {
		t.Errorf("%+v", lost)
	}
}

// One webhook more than may wait is dropped, and recorded so.
func TestWebhooksAreBounded(t *testing.T) {
	clock := new(ManualClock)
	g := begin(t, Config{Clock: clock, MaxWebhooks: 1, HeaderFaults: true, Webhook: func(context.Context, Notice) error { return nil }}, rules{})
	g.charge(t.Context(), "k", 5, HeaderFault, "twice; webhook_after_ms=20")
	one := func(e Entry) bool {
		return clock.Waiting() == 1 && len(e.Answers) == 2 && e.Answers[1].Delivery == NotWritten
	}
	if err := awaitDelivery(t.Context(), g.Ledger(), "k", one); err != nil {
		t.Fatal(err)
	}
	clock.Advance(time.Second)
	two := func(e Entry) bool { return len(e.Answers) == 3 && e.Answers[2].Delivery == Acknowledged }
	if err := awaitDelivery(t.Context(), g.Ledger(), "k", two); err != nil {
		t.Fatal(err)
	}
}

// What a request draws follows from the seed, its key and how often it was asked.
func TestChancesAreReproducible(t *testing.T) {
	c := Config{Seed: 7}
	c.Chances = EveryFault(c, 0.05)
	p := &Provider{c: c}
	count := map[string]int{}
	for i := range 20_000 {
		call := Call{Op: Charge, Verb: Make, Key: "k" + strings.Repeat("x", i%7) + string(rune('a'+i%26)) + time.Duration(i).String(), Nth: 1 + i%3}
		f, _ := p.choose(call, "")
		if again, _ := p.choose(call, ""); again != f {
			t.Fatalf("%+v draws %q, then %q", call, f.Name, again.Name)
		}
		count[f.Name]++
	}
	for _, chance := range c.Chances {
		if n := count[chance.Fault.Name]; n < 850 || n > 1150 {
			t.Errorf("%s: %d of 20,000 at 5 %%", chance.Fault.Name, n)
		}
	}
	if p.c.Seed++; slices.Equal(drawn(p, 50), drawn(&Provider{c: c}, 50)) {
		t.Error("another seed draws the same")
	}
}

func drawn(p *Provider, n int) (names []string) {
	for i := range n {
		f, _ := p.choose(Call{Op: Charge, Verb: Make, Key: "k", Nth: i}, "")
		names = append(names, f.Name)
	}
	return names
}

// What is beyond a bound is refused without an effect.
func TestBounds(t *testing.T) {
	g := begin(t, Config{MaxKeys: 1, MaxBody: 64, MaxConnections: 2}, rules{})
	ctx := t.Context()
	for _, c := range []struct {
		key, body string
		status    int
	}{
		{"", `{"amount":1}`, 400}, {strings.Repeat("k", MaxKeyBytes+1), `{"amount":1}`, 400},
		{"k", `{"amount":0}`, 400}, {"k", `{`, 400}, {"k", `{"amount":1,"text":"` + strings.Repeat("x", 64) + `"}`, 413},
		{"k", `{"amount":1}`, 201}, {"another", `{"amount":1}`, 507},
	} {
		if out := g.do(ctx, http.MethodPost, "/charges", c.body, HeaderKey, c.key); out.status != c.status {
			t.Errorf("%.20q %.20q: %d %s, want %d", c.key, c.body, out.status, out.body, c.status)
		}
	}
	if out := g.charge(ctx, "k", 1, HeaderNotAfter, "soon"); out.status != 400 {
		t.Errorf("%+v", out)
	}
	if out := g.closeKey(ctx, "k"); out.status != 404 {
		t.Errorf("closing, of a provider that does not: %+v", out)
	}
	if n := len(g.Ledger().Effects()); n != 1 {
		t.Errorf("%d effects", n)
	}
	g.client.CloseIdleConnections()
	ended := make(chan error, 3)
	for range cap(ended) {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", strings.TrimPrefix(g.base, "http://"))
		if err != nil { // it was reset at once
			ended <- err
			continue
		}
		t.Cleanup(func() { conn.Close() })
		go func() { _, err := conn.Read(make([]byte, 1)); ended <- err }()
	}
	if err := <-ended; err == nil {
		t.Error("a connection too many was answered")
	}
}
