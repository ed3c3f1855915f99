package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/inbox"
	"github.com/tenure-go/tenure/outbox"
)

// mailCalls are the calls that write, each about messages that prepareMail has made ready for it.
func mailCalls(p *post) map[string]func(ctx context.Context) error {
	return map[string]func(ctx context.Context) error{
		"append": func(ctx context.Context) error {
			_, err := p.mail.Append(ctx, []outbox.Message{letterTo(1, "")})
			return err
		},
		"claim": func(ctx context.Context) error {
			req := mailClaim(2, 10)
			req.Topics = []string{"claimed"}
			_, err := p.mail.Claim(ctx, req)
			return err
		},
		"settle": func(ctx context.Context) error {
			_, err := p.mail.Settle(ctx, outbox.SettleRequest{Claim: mailClaim(3, 1).Claim, Verdicts: []outbox.Verdict{{Position: p.places[3], Outcome: outbox.Failed, Error: "x", Dead: true}}})
			return err
		},
		"pause": func(ctx context.Context) error {
			return p.mail.Pause(ctx, outbox.PauseRequest{Topic: "paused", Paused: true})
		},
		"retry": func(ctx context.Context) error {
			_, err := p.mail.Retry(ctx, outbox.MoveRequest{IDs: []fence.ID{mailID(4)}, Limit: 1})
			return err
		},
		"replay": func(ctx context.Context) error {
			_, err := p.mail.Replay(ctx, outbox.MoveRequest{IDs: []fence.ID{mailID(5)}, Limit: 1})
			return err
		},
		"prune": func(ctx context.Context) error {
			_, err := p.mail.Prune(ctx, outbox.PruneRequest{Delivered: time.Hour, Limit: 1})
			return err
		},
		"prune notes": func(ctx context.Context) error { _, err := p.in.Prune(ctx, 24*time.Hour, 10); return err },
	}
}

func prepareMail(t *testing.T, s *Store) *post {
	t.Helper()
	in, err := s.Inbox(inbox.Options{Window: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	p := &post{t: t, mail: s.Outbox(), in: in, places: map[int]int64{}}
	for n := 2; n <= 6; n++ {
		m := letterTo(n, "")
		if n == 2 {
			m.Topic = "claimed"
		}
		p.append(m)
		p.places[n] = p.get(n).Position
	}
	req := mailClaim(3, 10)
	req.Topics = []string{"tickets"}
	if _, err := p.mail.Claim(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	p.settle(outbox.SettleRequest{Claim: req.Claim, Verdicts: []outbox.Verdict{{Position: p.places[4], Outcome: outbox.Failed, Dead: true}, {Position: p.places[5], Outcome: outbox.Published}, {Position: p.places[6], Outcome: outbox.Published}}})
	plainExec(t, s.path, fmt.Sprintf(`UPDATE tenure_message SET at = at - 7200000000000, appended = appended - 7200000000000 WHERE position = %d`, p.places[6]),
		`INSERT INTO tenure_inbox SELECT 'consumer', 'old', mark - 7 * 86400000000000 FROM tenure_authority`)
	return p
}

func mailByQuery(t *testing.T, s *Store) string {
	t.Helper()
	tx, err := s.readDB.BeginTx(t.Context(), &sql.TxOptions{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	var all strings.Builder
	for _, table := range []string{"tenure_message", "tenure_message_body", "tenure_message_error", "tenure_outbox", "tenure_paused", "tenure_inbox"} {
		if err := dumpTable(t.Context(), tx, table, &all); err != nil {
			t.Fatal(err)
		}
	}
	return all.String()
}

func isUnavailable(err error) bool {
	return errors.Is(err, outbox.ErrUnavailable) || errors.Is(err, inbox.ErrUnavailable)
}

// A call whose context ends while it waits is withdrawn: certainly not applied, then or later.
func TestWithdrawnMailCallsAreNotApplied(t *testing.T) {
	t.Parallel()
	s := openPath(t, newPath(t))
	p := prepareMail(t, s)
	before := mailByQuery(t, s)
	g := holdWriter(t, s)
	ctx, cancel := context.WithCancelCause(t.Context())
	var waiting sync.WaitGroup
	calls := mailCalls(p)
	for name, call := range calls {
		waiting.Go(func() {
			if err := call(ctx); !isUnavailable(err) || !strings.Contains(err.Error(), "changed my mind") {
				t.Errorf("%s: %v", name, err)
			}
			if err := call(ctx); !isUnavailable(err) {
				t.Errorf("%s, with a context that had ended: %v", name, err)
			}
		})
	}
	waitQueued(t, s, len(calls))
	cancel(errors.New("changed my mind"))
	waiting.Wait() // while the writer is still held
	g.open()
	if after := mailByQuery(t, s); after != before {
		t.Errorf("a withdrawn call was applied:\n%s\nbefore:\n%s", after, before)
	}
	for name, call := range calls {
		if err := call(t.Context()); err != nil {
			t.Errorf("%s afterwards: %v", name, err)
		}
	}
}

// A call that the writer has taken when its context ends may be applied: the caller is told so, and repeating it settles it; what the writer reads by then is not the
// caller's any more.
func TestTakenMailCallsAreUnknownAndSettle(t *testing.T) {
	t.Parallel()
	s := openPath(t, newPath(t))
	p := prepareMail(t, s)
	calls := mailCalls(p)
	message := letterTo(1, "")
	message.Headers = map[string]string{"name": "value"}
	calls["append"] = func(ctx context.Context) error { _, err := p.mail.Append(ctx, []outbox.Message{message}); return err }
	g := holdWriter(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	answers := map[string]chan error{}
	for name, call := range calls {
		answer := make(chan error, 1)
		answers[name] = answer
		go func() { answer <- call(ctx) }()
	}
	waitQueued(t, s, len(calls))
	second := queueGate(t, s)
	g.open()
	<-second.inside // the calls are in the same batch, before this one: they were taken
	cancel()
	for name, answer := range answers {
		if err := <-answer; !errors.Is(err, outbox.ErrUnknown) && !errors.Is(err, inbox.ErrUnknown) {
			t.Errorf("%s: %v", name, err)
		}
	}
	message.Payload[0], message.Headers["name"] = 'X', "scribbled over"
	second.open()
	message = letterTo(1, "")
	message.Headers = map[string]string{"name": "value"}
	for name, call := range calls {
		if err := call(t.Context()); err != nil {
			t.Errorf("%s, the same again: %v", name, err)
		}
	}
	if got := p.get(3); got.State != outbox.Dead || len(got.Errors) != 1 {
		t.Errorf("settled twice: %+v", got)
	}
	if err := checkMail(t.Context(), s.readDB); err != nil {
		t.Error(err)
	}
}

// On a full disk a call that needs space says so, and changes nothing; those that share a batch with it do not share its fate; and all goes on when there is space again.
func TestMailOnAFullDisk(t *testing.T) {
	t.Parallel()
	s := openPath(t, newPath(t))
	p := prepareMail(t, s)
	big := []outbox.Message{letterTo(20, "key"), letterTo(21, "key")}
	big[1].Payload = make([]byte, outbox.MaxPayload)
	limitPages(t, s, "(SELECT page_count + 4 FROM pragma_page_count)")
	calls := mailCalls(p)
	calls["big"] = func(ctx context.Context) error { _, err := p.mail.Append(ctx, big); return err }
	g := holdWriter(t, s)
	results := map[string]chan error{}
	for name, call := range calls {
		result := make(chan error, 1)
		results[name] = result
		go func() { result <- call(t.Context()) }()
	}
	waitQueued(t, s, len(calls))
	g.open()
	for name, result := range results {
		err := <-result
		if name == "big" {
			wantKind(t, err, outbox.ErrUnavailable, "free some space")
			wantKind(t, err, ErrFull)
		} else if err != nil {
			t.Errorf("%s shared the fate of a call that found no space: %v", name, err)
		}
	}
	if _, err := p.mail.Get(t.Context(), mailID(20)); !errors.Is(err, outbox.ErrNotFound) {
		t.Errorf("of two messages that found no space together: %v", err)
	}
	limitPages(t, s, "1000000")
	p.append(big...)
	if got := p.get(21); got.Bytes != outbox.MaxPayload {
		t.Errorf("when there is space again: %+v", got.Bytes)
	}
	if err := checkMail(t.Context(), s.readDB); err != nil {
		t.Error(err)
	}
}

// A store that was shut down answers nothing, and says that nothing was applied.
func TestMailAfterShutdown(t *testing.T) {
	t.Parallel()
	s := openPath(t, newPath(t))
	p := prepareMail(t, s)
	shutDown(t, s)
	calls := mailCalls(p)
	calls["get"] = func(ctx context.Context) error { _, err := p.mail.Get(ctx, mailID(1)); return err }
	calls["list"] = func(ctx context.Context) error {
		_, err := p.mail.List(ctx, outbox.ListRequest{Limit: 1})
		return err
	}
	calls["topics"] = func(ctx context.Context) error { _, err := p.mail.Topics(ctx, ""); return err }
	for name, call := range calls {
		if err := call(t.Context()); !isUnavailable(err) || !errors.Is(err, ErrShutDown) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
