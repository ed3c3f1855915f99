package drill

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tenure-go/tenure/drill/model"
	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/lease"
	"github.com/tenure-go/tenure/store/sqlite"
)

// newResource makes the tables of a run in a file of its own.
func newResource(t *testing.T) (*resource, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "t.db")
	store, err := sqlite.Open(t.Context(), sqlite.Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Shutdown(context.Background()) })
	res, err := openResource(place{Path: path}, newRun(time.Now()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = res.close() })
	if err := res.create(t.Context()); err != nil {
		t.Fatal(err)
	}
	return res, path
}

// TestTheJudgeReadsTheResourceItself: nothing that it is told decides, only what is in the file.
func TestTheJudgeReadsTheResourceItself(t *testing.T) {
	res, path := newResource(t)
	ctx := t.Context()
	write := func(writer, element string, token fence.Token, late bool, base ...string) {
		t.Helper()
		w := writing{round: 1, writer: writer, element: element, base: base, claim: fence.Claim{Token: token}, late: late}
		if a, err := res.write(ctx, w, nil); err != nil || !a.Accepted {
			t.Fatal(a, err)
		}
	}
	write("A", "a-1", 1, false)
	write("B", "b-1", 2, false, "a-1")
	write("A", "a-2", 1, true, "a-1")
	ask := func(fenced bool) model.Verdict {
		t.Helper()
		text, err := json.Marshal(question{place: place{Path: path}, Run: res.run, Demand: model.Demand{Rounds: 1, Late: 1, Fenced: fenced}})
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if err := Judge(ctx, bytes.NewReader(text), &out); err != nil {
			t.Fatal(err)
		}
		var v model.Verdict
		if err := json.Unmarshal(out.Bytes(), &v); err != nil {
			t.Fatal(err)
		}
		return v
	}
	if v := ask(true); v.OK || v.AcceptedStale != 1 || v.LostUpdates != 1 {
		t.Errorf("as fenced: %+v", v)
	}
	if v := ask(false); !v.OK || v.AcceptedStale != 1 || v.LostUpdates != 1 || v.LateSent != 1 {
		t.Errorf("as unfenced: %+v", v)
	}
}

// TestARefusalChangesNothing holds the resource to its transaction.
func TestARefusalChangesNothing(t *testing.T) {
	res, _ := newResource(t)
	w := writing{round: 1, writer: "A", element: "a-1", claim: fence.Claim{Name: "n", Token: 1}}
	if _, err := res.write(t.Context(), w, nil); err != nil {
		t.Fatal(err)
	}
	w.element, w.base, w.late = "a-2", []string{"a-1"}, true
	refuse := &fence.RefusedError{Claim: w.claim, Why: fence.Superseded, Newer: 2}
	a, err := res.write(t.Context(), w, func(context.Context, *sql.Tx, fence.Claim) error { return refuse })
	if err != nil || a.Accepted || a.Newer != 2 || a.Why != "superseded" {
		t.Errorf("answer %+v, %v", a, err)
	}
	h, err := res.history(t.Context())
	if err != nil || len(h.Writes) != 1 || !slices.Equal(h.Content[1], []string{"a-1"}) || len(h.Answers) != 2 {
		t.Errorf("%+v, %v", h, err)
	}
	if _, err := res.write(t.Context(), w, func(context.Context, *sql.Tx, fence.Claim) error { return errors.New("broken") }); err == nil {
		t.Error("an error of the check is taken for an answer")
	}
}

func TestPartsRefuseNonsense(t *testing.T) {
	for _, line := range []string{"", "nonsense", `{"path":7}`} {
		if err := Worker(t.Context(), strings.NewReader(line), &bytes.Buffer{}); !errors.Is(err, ErrProcess) {
			t.Errorf("worker on %q: %v", line, err)
		}
		if err := Judge(t.Context(), strings.NewReader(line), &bytes.Buffer{}); !errors.Is(err, ErrProcess) {
			t.Errorf("judge on %q: %v", line, err)
		}
	}
	res, path := newResource(t)
	in := `{"path":` + quote(path) + `,"run":"` + res.run + `","guard":"strict","name":"A","round":1}` + "\n" +
		`{"id":1,"op":"dance"}` + "\n" + `{"id":2,"op":"read"}` + "\n"
	var out bytes.Buffer
	if err := Worker(t.Context(), strings.NewReader(in), &out); err != nil {
		t.Fatal(err)
	}
	s := scanner(&out, maxLine)
	var first, second reply
	if err := errors.Join(receive(s, &first), receive(s, &second)); err != nil || first.Err == "" || first.ID != 1 || second.Err != "" || second.ID != 2 {
		t.Errorf("%+v %+v %v", first, second, err)
	}
	if err := Worker(t.Context(), strings.NewReader(`{"path":`+quote(path)+`,"guard":"maybe"}`), &out); !errors.Is(err, ErrProcess) {
		t.Errorf("a guard that nobody knows: %v", err)
	}
}

func quote(s string) string {
	text, _ := json.Marshal(s)
	return string(text)
}

// TestASlowMachineVoidsTheRound: a round in which a worker lost its lease by being slow is played again, and counts once.
func TestASlowMachineVoidsTheRound(t *testing.T) {
	o := options(t, "pause", "sound", 2)
	sc, err := o.complete()
	if err != nil {
		t.Fatal(err)
	}
	slow := func(times int) func(context.Context, *round) error {
		return func(ctx context.Context, r *round) error {
			if r.turn == 1 && times > 0 {
				times--
				if _, err := r.holder(ctx, "slow", 0); err != nil {
					return err
				}
				return &workerError{worker: "A", op: "check", code: lease.CodeOf(lease.ErrEnded)}
			}
			return playPause(ctx, r)
		}
	}
	sc.play = slow(2)
	r, err := conduct(t.Context(), o, sc)
	if err != nil || !r.OK || r.ReplayedRounds != 2 || r.LateWritesSent != 2 {
		t.Errorf("slow twice: %+v, %v", r, err)
	}
	sc.play = slow(3)
	r, err = conduct(t.Context(), o, sc)
	if err != nil || r.OK || len(r.InvalidRounds) != 1 {
		t.Errorf("slow for good: %+v, %v", r, err)
	}
}

// TestASlowStoryIsNotAFailure: a lease that ran out because a step took too long says nothing of the store.
func TestASlowStoryIsNotAFailure(t *testing.T) {
	s := memoryStage(&shelf{history: model.History{Content: map[int][]string{}}}, 1, true)
	reach := s.reach
	s.reach = func(ctx context.Context, step model.Step) error {
		if step.At == 8 { // it takes from 8 to 9
			step.At = 9
		}
		return reach(ctx, step)
	}
	if _, err := s.play(t.Context()); !errors.Is(err, errTooSlow) {
		t.Errorf("got %v", err)
	}
}

func TestReportForms(t *testing.T) {
	r := reportOf(model.Verdict{LateSent: 2, AcceptedStale: 0, RefusedStale: 2, SuccessorWrites: 2, OK: true,
		Handover: &model.Handover{Rounds: 2, Within: 2, WithinMS: 100, P50US: 1500, P99US: 2500, MaxUS: 2500}}, nil)
	r.Scenario, r.Store, r.Rounds, r.Fenced = "kill", "sqlite:/t.db", 2, true
	var text, table bytes.Buffer
	if err := errors.Join(r.WriteJSON(&text), r.WriteTable(&table)); err != nil {
		t.Fatal(err)
	}
	const first = `{"scenario":"kill","store":"sqlite:/t.db","rounds":2,"fenced":true,"late_writes_sent":2,"accepted_stale_writes":0,` +
		`"refused_stale_writes":2,"successor_writes":2,"lost_updates":0,"ok":true,"invalid_rounds":[],`
	if !strings.HasPrefix(text.String(), first) || strings.Count(text.String(), "\n") != 1 {
		t.Errorf("JSON: %s", &text)
	}
	for _, want := range []string{"fenced: the resource checks each claim, on sqlite:/t.db", "p50 1.5 ms, p99 2.5 ms, max 2.5 ms",
		"2 of 2 rounds", "ok: 0 of 2 late writes accepted"} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("no %q in\n%s", want, &table)
		}
	}
	failed := reportOf(model.Verdict{OK: true}, slices.Repeat([]error{ErrProcess}, maxFailures+5))
	if failed.OK || len(failed.Problems) != maxFailures+1 {
		t.Errorf("%+v", failed)
	}
}

func TestScenariosAreExplained(t *testing.T) {
	for _, s := range Scenarios() {
		if s.Name == "" || s.Summary == "" || s.Shows == "" || s.Unfenced == "" || s.Rounds < 1 || s.whole == nil && (s.atOnce < 1 || s.unguarded == "") {
			t.Errorf("%+v", s)
		}
		if s.Name != "story" && s.whole == nil && (s.play == nil || s.demand.Late == 0 || s.ttl-s.margin < s.ttl/3) {
			t.Errorf("%s cannot be played", s.Name)
		}
	}
}
