package flakypay

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"
)

const patience = 150 * time.Millisecond // of a client; nothing below depends on who loses patience

// clients know what they were told, at once or late.
type clients struct {
	*rig
	mu    sync.Mutex
	told  map[string]bool // their key is decided by an answer that they have
	sent  map[string]int64
	wrong []error
}

// learn is what a client keeps of an answer that decides.
func (c *clients) learn(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.told[key] = true
}

// hear is the webhook: the notice is recorded before it is acknowledged.
func (c *clients) hear(_ context.Context, n Notice) error {
	if n.Status == 201 {
		c.learn(n.Key)
	}
	return nil
}

// pay charges one key, at most tries times, and acknowledges what it hears. It asks again only where that is safe, if once is set: after a refusal that was heard.
func (c *clients) pay(ctx context.Context, key string, tries int, once bool) {
	refused := 0
	for try := 1; try <= tries; try++ {
		c.mu.Lock()
		c.sent[key]++
		c.mu.Unlock()
		bound, end := context.WithTimeout(ctx, patience)
		out := c.charge(bound, key, 5, HeaderAttempt, fmt.Sprint(try))
		end()
		if out.err != nil {
			if once {
				return
			}
			continue
		}
		if err := c.acknowledge(ctx, Charge, key, out.number()); err != nil {
			c.mu.Lock()
			c.wrong = append(c.wrong, fmt.Errorf("%s, answer %d: %w", key, out.number(), err))
			c.mu.Unlock()
			return
		}
		if out.status == 201 || out.Final {
			c.learn(key)
			return
		}
		refused++
	}
	if refused == tries {
		c.learn(key)
	}
}

// run does something to each of so many keys, 32 at a time, and ends the provider, so that nothing is on its way any more.
func (c *clients) run(t *testing.T, keys int, do func(key string)) {
	t.Helper()
	work := make(chan string)
	var all sync.WaitGroup
	for range 32 {
		all.Go(func() {
			for key := range work {
				do(key)
			}
		})
	}
	for i := range keys {
		work <- fmt.Sprintf("key-%d", i)
	}
	close(work)
	all.Wait()
	if err := c.stop(); err != nil {
		t.Error(err)
	}
	for _, err := range c.wrong {
		t.Error(err)
	}
}

// settle closes the key, or finds its effect: it asks until it is answered.
func (c *clients) settle(ctx context.Context, key string) {
	for ctx.Err() == nil {
		bound, end := context.WithTimeout(ctx, patience)
		out := c.closeKey(bound, key)
		end()
		if out.err == nil && out.status == 200 {
			return
		}
	}
}

// calls waits until no webhook is on its way.
func (c *clients) calls(t *testing.T) {
	t.Helper()
	if err := awaitDelivery(t.Context(), c.Ledger(), "", func(Entry) bool { return len(c.waiting) == 0 }); err != nil {
		t.Fatal(err)
	}
}

// A provider that keeps its keys: however often a client asks again, there is one effect, and none where it is refused.
func TestAuditOfKeptKeys(t *testing.T) {
	c := &clients{told: map[string]bool{}, sent: map[string]int64{}}
	config := Config{Closes: true, Webhook: c.hear, Seed: 1}
	config.Chances = EveryFault(config, 0.05)
	c.rig = begin(t, config, rules{})
	c.run(t, 200, func(key string) {
		c.pay(t.Context(), key, 3, false)
		c.settle(t.Context(), key)
	})
	for _, tally := range c.Ledger().Tallies() {
		if settled := tally.Closed || tally.RefusedFinally; tally.Effects > 1 || (tally.Effects == 1) == settled {
			t.Errorf("%+v", tally)
		}
	}
}

// A provider that forgets: what can be known is what was acknowledged, key by key, as the clients have it, who ask no second time where the first outcome is unknown.
func TestAuditOfForgottenKeys(t *testing.T) {
	c := &clients{told: map[string]bool{}, sent: map[string]int64{}}
	config := Config{Forget: Forget{AtOnce: true}, Webhook: c.hear, Seed: 2}
	config.Chances = EveryFault(config, 0.05)
	c.rig = begin(t, config, rules{})
	c.run(t, 400, func(key string) { c.pay(t.Context(), key, 3, true) })
	known := 0
	for _, tally := range c.Ledger().Tallies() {
		knows, all := c.told[tally.Key], tally.Requests == c.sent[tally.Key] // else one was never read, because its client lost patience first: it does not know that
		if tally.Effects > 1 || tally.Requests > c.sent[tally.Key] || all && tally.Knowable(Acknowledged) != knows || knows && !tally.Knowable(Acknowledged) {
			t.Errorf("the client knows: %t, of %d requests: %+v", knows, c.sent[tally.Key], tally)
		}
		if knows {
			known++
		}
	}
	if known == 0 || known != len(c.told) || known == len(c.sent) {
		t.Errorf("%d known of %d, %d of them in the ledger", len(c.told), len(c.sent), known)
	}
}

// What Knowable says follows from which requests were answered, and by what.
func TestKnowable(t *testing.T) {
	for _, c := range []struct {
		name   string
		tally  Tally
		by     Delivery
		expect bool
	}{
		{"nothing", Tally{}, Sending, false},
		{"an effect, told", Tally{Requests: 3, EffectTold: Written, RefusedTold: [6]int64{3}}, Written, true},
		{"an effect, perhaps read", Tally{Requests: 1, EffectTold: Written, RefusedTold: [6]int64{1}}, Acknowledged, false},
		{"final", Tally{Requests: 2, FinalTold: Acknowledged}, Acknowledged, true},
		{"one refused, one unanswered", Tally{Requests: 2, RefusedTold: [6]int64{1, 0, 0, 0, 1}}, Sending, false},
		{"both refused", Tally{Requests: 2, RefusedTold: [6]int64{0, 0, 0, 0, 1, 1}}, Written, true},
		{"both refused, one perhaps not read", Tally{Requests: 2, RefusedTold: [6]int64{0, 0, 0, 0, 1, 1}}, Acknowledged, false},
	} {
		if got := c.tally.Knowable(c.by); got != c.expect {
			t.Errorf("%s: %t", c.name, got)
		}
	}
}

// Details are bounded, figures are not, and a refusal that is told twice counts for one request.
func TestDetailsAreBounded(t *testing.T) {
	g := begin(t, Config{HeaderFaults: true, Webhook: func(context.Context, Notice) error { return nil }}, rules{})
	ctx := t.Context()
	g.charge(ctx, "k", 5, HeaderFault, "down")
	for range 2 * MaxDetails {
		if out := g.charge(ctx, "k", 5, HeaderFault, "refused; webhooks=1"); out.status != 402 {
			t.Fatalf("%+v", out)
		}
	}
	(&clients{rig: g}).calls(t)
	settled := func(e Entry) bool {
		return !slices.ContainsFunc(e.Answers, func(n Answer) bool { return n.Delivery == Sending })
	}
	if err := awaitDelivery(ctx, g.Ledger(), "k", settled); err != nil {
		t.Fatal(err)
	}
	e := g.Ledger().Entry(Charge, "k")
	told := int64(0)
	for _, n := range e.RefusedTold[Written:] {
		told += n
	}
	if len(e.Requests) != MaxDetails || len(e.Answers) != MaxDetails || e.Tally.Requests != 2*MaxDetails+1 || told != 2*MaxDetails || e.Knowable(Sending) {
		t.Errorf("%d and %d details, %+v", len(e.Requests), len(e.Answers), e.Tally)
	}
}

// The provider in a process of its own is killed after the effect and before its answer. Its file tells both, and it goes on from there.
func TestLedgerSurvivesKill(t *testing.T) {
	name := filepath.Join(t.TempDir(), "ledger")
	cmd, g := spawn(t, name)
	ctx := t.Context()
	answer := make(chan got, 1)
	go func() { answer <- g.charge(ctx, "k", 5, HeaderFault, "none; hold_after=made", HeaderAttempt, "1") }()
	if out := g.closeKey(ctx, "closed"); out.Finding != KeyClosed {
		t.Errorf("%+v", out)
	}
	read := func() *Ledger {
		file, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		l, err := ReadLedger(file)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	if err := awaitDelivery(ctx, newLedger(), "", func(Entry) bool { return read().Tally(Charge, "k").Effects == 1 }); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if out := <-answer; out.err == nil {
		t.Errorf("%+v", out)
	}
	_ = cmd.Wait() // it was killed
	if l := read(); len(l.Unknowable(Sending)) != 1 || !l.Tally(Charge, "closed").Closed || l.Effects()[0].Attempt != "1" {
		t.Errorf("%+v, %+v", l.Tallies(), l.Effects())
	}
	cmd, g = spawn(t, name)
	again, closed, next := g.charge(ctx, "k", 5), g.charge(ctx, "closed", 5), g.charge(ctx, "next", 5)
	if again.ID != "ch_1" || again.header.Get(HeaderReplay) == "" || closed.status != 402 || next.ID != "ch_2" || again.number() < 1 {
		t.Errorf("%+v, %+v, %+v", again, closed, next)
	}
	if other := g.charge(ctx, "k", 6); other.status != 422 {
		t.Errorf("%+v", other)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("told to end: %v", err)
	}
	if d := read().Doubles(); len(d) != 0 {
		t.Errorf("%+v", d)
	}
}

// spawn starts this test binary as a provider.
func spawn(t *testing.T, file string) (*exec.Cmd, *rig) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), childFile+"="+file)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(errors.Join(err, cmd.Wait()))
	}
	g := remote("http://" + line[:len(line)-1])
	t.Cleanup(g.client.CloseIdleConnections)
	return cmd, g
}

// What cannot be recorded is not done: on a full disk there is no effect and no answer, and the provider ends with the reason.
func TestFullDiskHasNoEffect(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	g := begin(t, Config{}, rules{})
	g.charge(t.Context(), "before", 5)
	g.Ledger().mu.Lock()
	g.Ledger().file = full
	g.Ledger().mu.Unlock()
	if out := g.charge(t.Context(), "k", 5); out.err == nil {
		t.Errorf("%+v", out)
	}
	if err := g.stop(); !errors.Is(err, ErrFile) {
		t.Errorf("Serve ends with %v", err)
	}
	if n := g.Ledger().Tally(Charge, "k").Effects; n != 0 {
		t.Errorf("%d effects", n)
	}
}

func TestConfigErrors(t *testing.T) {
	for name, c := range map[string]Config{
		"closes and forgets":      {Closes: true, Forget: Forget{AtOnce: true}},
		"negative bound":          {MaxKeys: -1},
		"negative time":           {Forget: Forget{After: -1}},
		"sync without a file":     {Sync: true},
		"no URL":                  {WebhookURL: "::"},
		"two webhooks":            {WebhookURL: "http://x", Webhook: func(context.Context, Notice) error { return nil }},
		"too many chances":        {Chances: []Chance{{P: 0.6}, {P: 0.6}}},
		"negative chance":         {Chances: []Chance{{P: -0.1}}},
		"webhook without one":     {Chances: []Chance{{Fault: Fault{Webhooks: 1}}}},
		"forgets though it keeps": {Chances: []Chance{{Fault: Fault{Forget: true}}}},
		"another refusal":         {Chances: []Chance{{Fault: Fault{Refuse: Refusal{Status: 500}}}}},
		"negative delay":          {Chances: []Chance{{Fault: Fault{After: -1}}}},
	} {
		if _, err := New(c); !errors.Is(err, ErrConfig) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := New(Config{File: t.TempDir()}); !errors.Is(err, ErrFile) {
		t.Errorf("a folder as a file: %v", err)
	}
	name := filepath.Join(t.TempDir(), "ledger")
	if err := os.WriteFile(name, []byte("what\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := New(Config{File: name}); !errors.Is(err, ErrFile) {
		t.Errorf("another file: %v", err)
	}
}
