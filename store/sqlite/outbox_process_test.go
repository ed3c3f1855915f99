package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tenure-go/tenure/outbox"
)

// playMailChurn sells, appends what tells of it in the same transaction, and relays what it and others have appended, until it is killed. It says what was acknowledged, as
// soon as it was: "a" a sale, "s" a message that was sent, "d" a verdict. Every third transaction is rolled back.
func playMailChurn(ctx context.Context, st *stage) error {
	s, err := Open(ctx, Config{Path: st.job.Path})
	if err != nil {
		return err
	}
	mail := s.Outbox()
	db, err := sql.Open("sqlite", "file:"+st.job.Path+"?_pragma=busy_timeout(10000)&_pragma=synchronous(FULL)&_txlock=immediate")
	if err != nil {
		return err
	}
	from, err := strconv.Atoi(st.job.Names[0])
	if err != nil {
		return err
	}
	rolledBack := errors.New("rolled back")
	st.say("ready")
	for n := from; ; n++ {
		err := inOwnTx(ctx, db, func(tx *sql.Tx) error {
			if _, err := mail.AppendTx(ctx, tx, letterTo(n, []string{"", "key", "other"}[n%3])); err != nil {
				return err
			}
			if _, err := tx.ExecContext(ctx, `INSERT INTO sales VALUES (?)`, n); err != nil || n%4 > 0 {
				return err
			}
			return rolledBack
		})
		switch {
		case err == nil:
			st.say("a %d", n)
		case !errors.Is(err, rolledBack):
			return err
		}
		if err := relayOnce(ctx, st, mail); err != nil {
			return err
		}
	}
}

func relayOnce(ctx context.Context, st *stage, mail *Outbox) error {
	req := mailClaim(0, 8)
	req.Claim, req.TTL, req.MaxAttempts = newRandomID(), outbox.MinTTL, outbox.MaxAttempts
	got, err := mail.Claim(ctx, req)
	if err != nil || len(got.Deliveries) == 0 {
		return err
	}
	for _, d := range got.Deliveries {
		st.say("s %s", d.Payload)
	}
	done, err := mail.Settle(ctx, published(got))
	if err != nil {
		return err
	}
	for _, d := range got.Deliveries {
		if !slices.Contains(done.Late, d.Position) {
			st.say("d %s", d.Payload)
		}
	}
	return nil
}

// toldMail is what processes have said of messages, over all rounds.
type toldMail struct {
	t                       *testing.T
	appended, sent, settled map[int]bool
}

func (a *toldMail) note(lines []string) {
	a.t.Helper()
	for _, line := range lines {
		what, text, _ := strings.Cut(line, " ")
		n, err := strconv.Atoi(strings.TrimPrefix(text, "letter "))
		to := map[string]map[int]bool{"a": a.appended, "s": a.sent, "d": a.settled}[what]
		if err != nil || to == nil {
			a.t.Fatalf("a child said %q", line)
		}
		to[n] = true
	}
}

// check compares it with the file.
func (a *toldMail) check(path string) {
	a.t.Helper()
	if got := plainValue(a.t, path, `PRAGMA integrity_check`); got != "ok" {
		a.t.Fatal(got)
	}
	s := openPath(a.t, path)
	defer shutDown(a.t, s)
	if err := checkMail(a.t.Context(), s.readDB); err != nil {
		a.t.Error(err)
	}
	if got := plainValue(a.t, path, `SELECT (SELECT count(*) FROM sales) || ' ' || (SELECT count(*) FROM tenure_message) || ' ' || (SELECT count(*) FROM sales WHERE n % 4 = 0)`); !sameAndZero(got) {
		a.t.Errorf("sales, messages, and sales that were rolled back: %s", got)
	}
	p := &post{t: a.t, mail: s.Outbox()}
	for n := range a.appended {
		if got := p.get(n); a.settled[n] && got.State != outbox.Delivered {
			a.t.Errorf("message %d was told to be delivered, and is %v", n, got.State)
		}
	}
	if got := plainValue(a.t, path, `SELECT count(*) FROM tenure_message WHERE state = 3`); got != "0" {
		a.t.Errorf("%s messages are dead", got)
	}
}

func sameAndZero(text string) bool {
	var sales, messages, rolledBack int
	n, err := fmt.Sscan(text, &sales, &messages, &rolledBack)
	return n == 3 && err == nil && sales == messages && rolledBack == 0
}

// Two processes sell and relay, and are killed at any point, both or one of them. Each sale has its message and each message its sale, what was acknowledged stays so, and
// in the end all of them were sent.
func TestRelaysKilledAtAnyPoint(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	shutDown(t, openPath(t, path))
	plainExec(t, path, `CREATE TABLE sales (n INTEGER PRIMARY KEY) STRICT`)
	a := &toldMail{t, map[int]bool{}, map[int]bool{}, map[int]bool{}}
	churns := 0
	churn := func() *child {
		churns++
		c := start(t, "mail churn", job{Path: path, Names: []string{strconv.Itoa(churns * 1_000_000)}})
		c.hear("ready")
		return c
	}
	survivor := churn()
	for round := range killRounds(t) / 2 {
		victim := churn()
		<-time.After(time.Duration(rand.IntN(20_000)) * time.Microsecond) // the point of the kill is what is random here
		victim.kill()
		a.note(victim.rest())
		if round%8 == 7 {
			survivor.kill() // now nobody has the file open: the next opener recovers
			a.note(survivor.rest())
			a.check(path)
			survivor = churn()
		}
		if t.Failed() {
			t.FailNow()
		}
	}
	survivor.kill()
	a.note(survivor.rest())
	a.check(path)
	a.drain(path)
	a.check(path)
	if len(a.settled) == 0 || len(a.sent) < len(a.settled) {
		t.Errorf("this test shows nothing: %d sent, %d settled", len(a.sent), len(a.settled))
	}
	t.Logf("told of %d messages, of which %d were sent and %d acknowledged before the end", len(a.appended), len(a.sent), len(a.settled))
}

// drain sends all that is left.
func (a *toldMail) drain(path string) {
	a.t.Helper()
	s := openPath(a.t, path)
	defer shutDown(a.t, s)
	p := &post{t: a.t, mail: s.Outbox()}
	wait(a.t, func() bool {
		req := mailClaim(0, outbox.MaxBatch)
		req.Claim, req.MaxAttempts = newRandomID(), outbox.MaxAttempts
		got, err := p.mail.Claim(a.t.Context(), req)
		if err != nil {
			a.t.Fatal(err)
		}
		for _, d := range got.Deliveries {
			n, err := strconv.Atoi(strings.TrimPrefix(string(d.Payload), "letter "))
			if err != nil {
				a.t.Fatal(err)
			}
			a.sent[n] = true
		}
		if len(got.Deliveries) > 0 {
			p.settle(published(got))
		}
		return plainValue(a.t, path, `SELECT count(*) FROM tenure_message WHERE state = 1`) == "0"
	})
	for n := range a.appended {
		if !a.sent[n] {
			a.t.Errorf("message %d was never sent", n)
		}
	}
}

// mailSteps are a short history of messages, each step of which changes what the file holds. A historian makes it, and its log is cut at every sector.
func mailSteps(ctx context.Context, mail *Outbox) []func() error {
	claim := func(n int, ttl time.Duration) func() error {
		return func() error {
			req := mailClaim(n, 10)
			req.TTL = ttl
			_, err := mail.Claim(ctx, req)
			return err
		}
	}
	settle := func(n int, verdicts ...outbox.Verdict) func() error {
		return func() error {
			_, err := mail.Settle(ctx, outbox.SettleRequest{Claim: mailClaim(n, 1).Claim, Verdicts: verdicts})
			return err
		}
	}
	return []func() error{
		func() error {
			_, err := mail.Append(ctx, []outbox.Message{letterTo(1, ""), letterTo(2, "key"), letterTo(3, "key")})
			return err
		},
		claim(1, time.Hour),
		settle(1, outbox.Verdict{Position: 1, Outcome: outbox.Failed, Error: "refused", Dead: true}, outbox.Verdict{Position: 2, Outcome: outbox.Published}),
		settle(1, outbox.Verdict{Position: 3, Outcome: outbox.Returned}),
		func() error { _, err := mail.Retry(ctx, outbox.MoveRequest{Limit: 1}); return err },
		func() error { _, err := mail.Replay(ctx, outbox.MoveRequest{Limit: 1}); return err },
		func() error { return mail.Pause(ctx, outbox.PauseRequest{Topic: "tickets", Paused: true}) },
	}
}
