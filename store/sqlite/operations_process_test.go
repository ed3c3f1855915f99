package sqlite

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/operation"
)

// T59: twenty claimers in four processes, on one file. No error of SQLite reaches any of them, each operation is begun once and done once, and the numbers of attempts differ.
func TestT59ClaimersInSeveralProcesses(t *testing.T) {
	t.Parallel()
	const processes, claimers, operations = 4, 5, 300
	path := newPath(t)
	s := openPath(t, path)
	d := &desk{t, s.Operations()}
	plainExec(t, path, `CREATE TABLE effects (id TEXT PRIMARY KEY, number INTEGER)`)
	for i := range operations {
		d.submit(fmt.Sprint("op/", i))
	}
	var children []*child
	for range processes {
		children = append(children, start(t, "op claimers", job{Path: path, Claimers: claimers}))
	}
	took := make([]int, 0, processes)
	for _, c := range children {
		n, err := strconv.Atoi(c.hear("did"))
		if err != nil {
			t.Fatal(err)
		}
		took = append(took, n)
		c.hear("done")
	}
	if n := plainValue(t, path, `SELECT count(*) || ' ' || count(DISTINCT number) FROM effects`); n != fmt.Sprintf("%d %[1]d", operations) {
		t.Errorf("effects and different numbers: %s, want %d of each", n, operations)
	}
	if n := plainValue(t, path, `SELECT count(*) FROM tenure_operation WHERE state = 4 AND attempts = 1`); n != strconv.Itoa(operations) {
		t.Errorf("%s operations have succeeded at their first attempt", n)
	}
	if err := checkOperations(t.Context(), plainDB(t, path, "")); err != nil {
		t.Error(err)
	}
	t.Logf("the processes did %v", took)
}

// playOpClaimers works until nothing is left.
func playOpClaimers(ctx context.Context, st *stage) error {
	s, err := Open(ctx, Config{Path: st.job.Path})
	if err != nil {
		return err
	}
	var claimers sync.WaitGroup
	var mu sync.Mutex
	total, errs := 0, []error{}
	for i := range st.job.Claimers {
		claimers.Go(func() {
			n, err := workOff(ctx, s, i)
			mu.Lock()
			defer mu.Unlock()
			total, errs = total+n, append(errs, err)
		})
	}
	claimers.Wait()
	st.say("did %d", total)
	return errors.Join(append(errs, s.Shutdown(ctx))...)
}

func workOff(ctx context.Context, s *Store, claimer int) (total int, err error) {
	ops := s.Operations()
	for {
		jobs, err := ops.Claim(ctx, claimOf(1+claimer))
		if err != nil || len(jobs) == 0 {
			return total, err
		}
		all := make([]operation.Completion, len(jobs))
		for i, job := range jobs {
			all[i] = done(job.Ref)
		}
		errs, err := ops.Complete(ctx, all)
		if err := errors.Join(append(errs, err)...); err != nil {
			return total, err
		}
		for _, job := range jobs { // a second effect would break the primary key
			err := s.writer.do(ctx, &request{op: "effect", do: func(b *batch) error {
				_, err := s.conn.ExecContext(ctx, `INSERT INTO effects VALUES (?, ?)`, job.ID, int64(job.Number))
				b.wrote = true
				return err
			}}, false)
			if err != nil {
				return total, err
			}
		}
		total += len(jobs)
	}
}

// playOpChurn submits, claims and completes until it is killed, and says what was acknowledged, as soon as it was: "s" a submission, "c" a claim, "d" a completion.
func playOpChurn(ctx context.Context, st *stage) error {
	s, err := Open(ctx, Config{Path: st.job.Path})
	if err != nil {
		return err
	}
	ops := s.Operations()
	st.say("ready")
	for i := 0; ; i++ {
		for j := range 3 {
			id := fmt.Sprintf("%s/%d/%d", st.job.Names[0], i, j)
			if _, err := ops.Submit(ctx, submission(id)); err != nil {
				return err
			}
			st.say("s 0 %s", id)
		}
		claim := againClaim(time.Millisecond) // whatever a killed process has begun is begun again
		claim.Limit, claim.Kinds[0].Limit, claim.Kinds[0].MaxAttempts = 4, 4, 1000
		jobs, err := ops.Claim(ctx, claim)
		if err != nil {
			return err
		}
		for _, job := range jobs {
			st.say("c %d %s", job.Number, job.ID)
			errs, err := ops.Complete(ctx, []operation.Completion{done(job.Ref)})
			if err != nil || errs[0] != nil && !errors.Is(errs[0], operation.ErrStale) {
				return errors.Join(append(errs, err)...)
			}
			if errs[0] == nil {
				st.say("d %d %s", job.Number, job.ID)
			}
		}
		if _, err := ops.Expire(ctx, 10); err != nil {
			return err
		}
	}
}

// toldOps is what processes were told of operations, over all rounds.
type toldOps struct {
	t       *testing.T
	ids     map[string]bool
	numbers map[fence.Token]string // to the operation
	done    map[string]fence.Token
}

func (a *toldOps) note(lines []string) {
	a.t.Helper()
	for _, line := range lines {
		what, rest, _ := strings.Cut(line, " ")
		text, id, ok := strings.Cut(rest, " ")
		n, err := strconv.ParseInt(text, 10, 64)
		if !ok || err != nil {
			a.t.Fatalf("a child said %q", line)
		}
		number := fence.Token(n)
		switch what {
		case "s":
			a.ids[id] = true
		case "c":
			if former, twice := a.numbers[number]; twice {
				a.t.Fatalf("number %d was given to %s and to %s", number, former, id)
			}
			a.numbers[number] = id
		case "d":
			if former, twice := a.done[id]; twice {
				a.t.Fatalf("%s was done by attempt %d and by %d", id, former, number)
			}
			a.done[id] = number
		default:
			a.t.Fatalf("a child said %q", line)
		}
	}
}

// check compares it with the file.
func (a *toldOps) check(path string) {
	a.t.Helper()
	if got := plainValue(a.t, path, `PRAGMA integrity_check`); got != "ok" {
		a.t.Fatal(got)
	}
	s := openPath(a.t, path)
	defer shutDown(a.t, s)
	d := &desk{a.t, s.Operations()}
	if err := checkOperations(a.t.Context(), s.readDB); err != nil {
		a.t.Error(err)
	}
	for _, id := range a.numbers { // what was claimed was submitted, also where that was not told any more
		a.ids[id] = true
	}
	records := map[string]operation.Record{}
	for id := range a.ids {
		records[id] = d.get(id)
	}
	for number, id := range a.numbers {
		known := false
		for _, attempt := range records[id].Attempts {
			known = known || attempt.Number == number
		}
		if !known {
			a.t.Errorf("%s: attempt %d was told, and is not recorded: %+v", id, number, records[id].Attempts)
		}
	}
	for id, number := range a.done {
		if got := records[id]; got.State != operation.Succeeded || string(got.Result) != fmt.Sprint("done ", number) {
			a.t.Errorf("%s: done by attempt %d, the file says %v, %q", id, number, got.State, got.Result)
		}
	}
}

// Two processes work on one file and are killed at any point, both or one of them. All that was acknowledged is in the file, no number comes twice, nothing is done
// twice, and what a killed process had begun is begun again by another.
func TestOperationsKilledAtAnyPoint(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	a := &toldOps{t: t, ids: map[string]bool{}, numbers: map[fence.Token]string{}, done: map[string]fence.Token{}}
	churn := func(name string) *child {
		c := start(t, "op churn", job{Path: path, Names: []string{name}})
		c.hear("ready")
		return c
	}
	rounds := killRounds(t)
	survivor := churn("survivor/0")
	for round := range rounds {
		victim := churn(fmt.Sprint("victim/", round))
		<-time.After(time.Duration(rand.IntN(20_000)) * time.Microsecond) // the point of the kill is what is random here
		victim.kill()
		a.note(victim.rest())
		if round%4 == 3 {
			survivor.kill() // now nobody has the file open: the next opener recovers
			a.note(survivor.rest())
			a.check(path)
			survivor = churn(fmt.Sprint("survivor/", round))
		}
		if t.Failed() {
			t.FailNow()
		}
	}
	survivor.kill()
	a.note(survivor.rest())
	a.check(path)
	again := plainValue(t, path, `SELECT count(*) FROM tenure_operation WHERE attempts > 1`)
	if len(a.done) == 0 || len(a.numbers) == len(a.done) {
		t.Errorf("%d begun, %d done: this test shows nothing", len(a.numbers), len(a.done))
	}
	t.Logf("%d submitted, %d begun, %d done, %s begun again", len(a.ids), len(a.numbers), len(a.done), again)
}

// operationSteps are a short history of operations, each step of which changes what the file holds. A historian makes it, and its log is cut at every sector.
func operationSteps(ctx context.Context, ops *Operations) []func() error {
	var jobs []operation.Job
	submit := func(id string) func() error {
		return func() error {
			req := submission(id)
			req.Order = "o"
			_, err := ops.Submit(ctx, req)
			return err
		}
	}
	claim := func() (err error) {
		some, err := ops.Claim(ctx, againClaim(time.Minute))
		jobs = append(jobs, some...)
		return err
	}
	complete := func(answer operation.Answer) func() error {
		return func() error {
			errs, err := ops.Complete(ctx, []operation.Completion{{Ref: jobs[len(jobs)-1].Ref, Answer: answer}})
			return errors.Join(append(errs, err)...)
		}
	}
	found := operation.Answer{Known: operation.Effective, Result: []byte("result")}
	return []func() error{
		submit("first"), submit("second"), claim, complete(operation.Answer{Known: operation.NoAnswer, Reason: "no route"}), claim, complete(found), claim,
		func() error { _, err := ops.Cancel(ctx, "second", "no more"); return err },
		complete(operation.Answer{Known: operation.Refused}),
		func() error {
			late := operation.Answer{Known: operation.Effective, Result: []byte("late")}
			_, err := ops.Respond(ctx, operation.Response{ID: "second", Number: jobs[len(jobs)-1].Number, Answer: late})
			if errors.Is(err, operation.ErrStale) { // a conflict: the operation was cancelled
				err = nil
			}
			return err
		},
		func() error {
			_, err := ops.Prune(ctx, operation.PruneRequest{Records: time.Nanosecond, Limit: 10})
			return err
		},
	}
}
