package sqlite

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/lease"
)

// playChurn takes and drops names until it is killed, and says what was acknowledged, as soon as it was: "g" a
// grant, "r" a release.
func playChurn(ctx context.Context, st *stage) error {
	a, err := newActor(ctx, st)
	if err != nil {
		return err
	}
	st.say("ready")
	for i := 0; ; i++ {
		name := st.job.Names[i%len(st.job.Names)]
		id := a.ids.New()
		// The bound frees what a killed process held.
		grants, err := a.store.Acquire(ctx, lease.AcquireRequest{Session: a.session, ID: id, Names: []string{name}, MaxHold: 5 * time.Millisecond})
		if errors.Is(err, lease.ErrHeld) {
			continue
		}
		if err != nil {
			return err
		}
		st.say("g %d %s", grants[0].Claim.Token, name)
		if i%3 == 0 {
			continue // it ends by itself
		}
		_, err = a.store.Release(ctx, lease.ReleaseRequest{Session: a.session, ID: id, Names: []string{name}, ClosedBelow: id})
		if err != nil && !errors.Is(err, lease.ErrEnded) {
			return err
		}
		if err == nil {
			st.say("r %d %s", grants[0].Claim.Token, name)
		}
	}
}

// acknowledged is what processes were told, over all rounds.
type acknowledged struct {
	t        *testing.T
	grants   map[fence.Token]string
	latest   map[string]fence.Token
	released map[fence.Token]bool
}

// note reads what a child said before it was killed.
func (a *acknowledged) note(lines []string) {
	a.t.Helper()
	var last fence.Token
	for _, line := range lines {
		what, rest, _ := strings.Cut(line, " ")
		text, name, ok := strings.Cut(rest, " ")
		token, err := fence.ParseToken(text)
		if !ok || err != nil {
			a.t.Fatalf("a child said %q", line)
		}
		switch what {
		case "g":
			if former, twice := a.grants[token]; twice {
				a.t.Fatalf("token %d was granted for %s and for %s", token, former, name)
			}
			if token <= last {
				a.t.Fatalf("token %d after %d in one process", token, last)
			}
			last = token
			a.grants[token] = name
			a.latest[name] = max(a.latest[name], token)
		case "r":
			a.released[token] = true
		default:
			a.t.Fatalf("a child said %q", line)
		}
	}
}

// check compares it with the file.
func (a *acknowledged) check(path string) {
	a.t.Helper()
	if got := plainValue(a.t, path, `PRAGMA integrity_check`); got != "ok" {
		a.t.Fatal(got)
	}
	s := openPath(a.t, path)
	defer shutDown(a.t, s)
	var highest fence.Token
	for name, token := range a.latest {
		highest = max(highest, token)
		info := look(a.t, s, name)
		if info.Token < token {
			a.t.Errorf("%s: token %d was acknowledged, the file knows %d", name, token, info.Token)
		}
		if info.Token == token && a.released[token] && info.End != lease.EndReleased {
			a.t.Errorf("%s: the release of token %d was acknowledged, the file says %+v", name, token, info)
		}
	}
	if got := issued(a.t, path); got < highest {
		a.t.Errorf("token %d was issued, the counter stands at %d", highest, got)
	}
}

// killRounds is how often TestKilledAtAnyPoint kills its processes; TENURE_SQLITE_KILL_ROUNDS asks for more.
func killRounds(t *testing.T) int {
	t.Helper()
	text := os.Getenv("TENURE_SQLITE_KILL_ROUNDS")
	switch {
	case text == "" && raceDetector:
		return 24
	case text == "":
		return 40
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// Two processes write, on names of their own and on names that they share, and are killed at any point, both or one
// of them. All that was acknowledged is in the file, no token comes twice, and the file is intact.
func TestKilledAtAnyPoint(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	random := rand.New(rand.NewPCG(seed, 0))
	defer func() {
		if t.Failed() {
			t.Logf("seed %d", seed)
		}
	}()
	path := newPath(t)
	a := &acknowledged{t: t, grants: map[fence.Token]string{}, latest: map[string]fence.Token{}, released: map[fence.Token]bool{}}
	churn := func(i int) *child {
		return start(t, "churn", job{Path: path, Names: []string{"s/0", "s/1", fmt.Sprint("own/", i, "/0"), fmt.Sprint("own/", i, "/1")}})
	}
	survivor := churn(0)
	survivor.hear("ready")
	for round := range killRounds(t) {
		victim := churn(1 + round%2)
		victim.hear("ready")
		<-time.After(time.Duration(random.IntN(20_000)) * time.Microsecond) // the point of the kill is what is random here
		victim.kill()
		a.note(victim.rest())
		if round%4 == 3 || t.Failed() {
			survivor.kill() // now nobody has the file open: the next opener recovers
			a.note(survivor.rest())
			a.check(path)
			survivor = churn(0)
			survivor.hear("ready")
		}
		if t.Failed() {
			t.FailNow()
		}
	}
	survivor.kill()
	a.note(survivor.rest())
	a.check(path)
	if len(a.grants) < killRounds(t) || len(a.released) == 0 {
		t.Errorf("%d grants and %d releases: this test shows nothing", len(a.grants), len(a.released))
	}
	t.Logf("%d grants, %d releases acknowledged", len(a.grants), len(a.released))
}

// Processes are killed while they make the file: whatever they leave, the next one makes it, or finds it made.
func TestKilledWhileMakingTheFile(t *testing.T) {
	t.Parallel()
	made := 0
	for range 15 {
		path := newPath(t)
		for range 2 {
			maker := start(t, "opener", job{Path: path})
			// From the first sign of the file, or from nothing, to a while after it.
			for deadline := time.Now().Add(time.Duration(rand.IntN(60)) * time.Millisecond); time.Now().Before(deadline) && !exists(path); {
				runtime.Gosched()
			}
			<-time.After(time.Duration(rand.IntN(4000)) * time.Microsecond)
			maker.kill()
			if exists(path) {
				made++
			}
		}
		s := openPath(t, path)
		join(t, s, time.Minute).take("a")
		shutDown(t, s)
		if got := plainValue(t, path, `PRAGMA integrity_check`); got != "ok" {
			t.Error(got)
		}
	}
	t.Logf("%d of 30 were killed with the file begun", made)
}

// playHistorian makes a short history and says the whole state after each acknowledged step.
func playHistorian(ctx context.Context, st *stage) error {
	a, err := newActor(ctx, st)
	if err != nil {
		return err
	}
	steps := []func() error{
		func() error { return nil },
		func() error { return a.take(ctx, "a") },
		func() error { return a.take(ctx, "b") },
		func() error { return a.drop(ctx, "a") },
		func() error {
			_, err := a.store.Renew(ctx, lease.RenewRequest{Session: a.session})
			return err
		},
		func() error {
			_, err := a.store.Acquire(ctx, lease.AcquireRequest{Session: a.session, ID: a.ids.New(), Names: []string{"x", "y", "z"}})
			return err
		},
		func() error {
			return a.store.Fenced(ctx, a.claims["b"], func(ctx context.Context, tx *Tx) error {
				return Enter(ctx, tx, "resource", a.claims["b"])
			})
		},
		func() error {
			_, err := a.store.Revoke(ctx, lease.RevokeRequest{Name: "b", Token: a.claims["b"].Token, Reason: "history"})
			return err
		},
		func() error { return a.take(ctx, "a") },
		func() error { return a.store.Close(ctx, a.session) },
	}
	for _, step := range slices.Concat(steps, operationSteps(ctx, a.store.Operations()), holdSteps(ctx, a.store.Holds()), mailSteps(ctx, a.store.Outbox())) {
		if err := step(); err != nil {
			return err
		}
		text, err := dump(ctx, a.store.readDB)
		if err != nil {
			return err
		}
		st.say("state %s", strconv.Quote(text))
	}
	st.say("ready")
	st.await()
	return nil
}

// historyFile is the file as a killed process left it, and the states that were told on the way.
type historyFile struct {
	t         *testing.T
	file, log string
	step      map[string]int // state to the number of the step after which it was told
	copied    string         // where copies are opened
}

func newHistoryFile(t *testing.T) *historyFile {
	t.Helper()
	path := newPath(t)
	shutDown(t, openPath(t, path)) // the file itself holds the beginning, the log the whole history
	h := &historyFile{t: t, copied: newPath(t), step: map[string]int{}}
	db := plainDB(t, path, "")
	beginning, err := dump(t.Context(), db)
	db.Close()
	if err != nil {
		t.Fatal(err)
	}
	h.step[beginning] = 0
	historian := start(t, "historian", job{Path: path})
	for {
		line := historian.hear("")
		if line == "ready" {
			break
		}
		text, err := strconv.Unquote(strings.TrimPrefix(line, "state "))
		if err != nil {
			t.Fatal(err)
		}
		h.step[text] = len(h.step)
	}
	historian.kill()
	h.file, h.log = contents(t, path), contents(t, path+"-wal")
	return h
}

// open opens the file beside a log and returns the step whose state it shows.
func (h *historyFile) open(log string) int {
	h.t.Helper()
	for name, content := range map[string]string{"": h.file, "-wal": log} {
		if err := os.WriteFile(h.copied+name, []byte(content), 0o600); err != nil {
			h.t.Fatal(err)
		}
	}
	for _, suffix := range []string{"-shm", "-tenure"} {
		if err := os.Remove(h.copied + suffix); err != nil && !errors.Is(err, os.ErrNotExist) {
			h.t.Fatal(err)
		}
	}
	db := plainDB(h.t, h.copied, "")
	defer db.Close()
	text, err := dump(h.t.Context(), db)
	if err != nil {
		h.t.Fatalf("a log of %d bytes: %v", len(log), err)
	}
	at, known := h.step[text]
	if !known {
		h.t.Fatalf("a log of %d bytes shows a state that nobody was told:\n%s", len(log), text)
	}
	return at
}

// goesOn opens the copy as an authority, which grants, and looks whether the file is intact.
func (h *historyFile) goesOn() {
	h.t.Helper()
	s := openPath(h.t, h.copied)
	join(h.t, s, time.Minute).take("after")
	shutDown(h.t, s)
	if got := plainValue(h.t, h.copied, `PRAGMA integrity_check`); got != "ok" {
		h.t.Fatal(got)
	}
}

// The log is cut off at every sector, and sectors of it are lost: what opens is always the state after one of
// the acknowledged steps, intact, and the later the cut, the later the state. All of it is there if nothing is cut. With the race detector every third sector is cut at, which is
// two or three times in each page of the log, unless TENURE_SQLITE_ALL_SECTORS is set.
func TestLogCutAtEverySector(t *testing.T) {
	t.Parallel()
	const sector = 512
	every := sector
	if raceDetector && os.Getenv("TENURE_SQLITE_ALL_SECTORS") == "" {
		every = 3 * sector
	}
	h := newHistoryFile(t)
	last := 0
	for cut := 0; cut < len(h.log); cut += every {
		at := h.open(h.log[:cut])
		if at < last {
			t.Errorf("a log of %d bytes shows step %d, a shorter one step %d", cut, at, last)
		}
		last = at
		if cut%(48*sector) == 0 {
			h.goesOn()
		}
	}
	if at := h.open(h.log); at != len(h.step)-1 {
		t.Errorf("the whole log shows step %d of %d", at, len(h.step)-1)
	}
	h.goesOn()
	for lost := 0; lost < len(h.log); lost += 7 * sector {
		end := min(lost+sector, len(h.log))
		h.open(h.log[:lost] + strings.Repeat("\x00", end-lost) + h.log[end:])
	}
}
