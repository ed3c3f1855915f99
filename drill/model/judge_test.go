package model

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tenure-go/tenure/fence"
)

const ms = time.Millisecond

// sound is the history of a drill in which everything went as it should: in each round A writes, is paused, B succeeds
// and writes, and A's late write is refused, or, unfenced, overwrites B's.
func sound(rounds int, fenced bool) History {
	h := History{Content: map[int][]string{}}
	token := fence.Token(0)
	write := func(round int, writer, element string, content ...string) {
		h.Writes = append(h.Writes, Write{Round: round, Writer: writer, Element: element, Token: token, Content: content})
		h.Answers = append(h.Answers, Answer{Round: round, Writer: writer, Element: element, Token: token, Accepted: true})
		h.Content[round] = content
	}
	for round := 1; round <= rounds; round++ {
		at := time.Duration(round) * time.Minute
		token++
		old := token
		write(round, "A", "a-1", "a-1")
		h.Events = append(h.Events, Event{round, old, Granted, at}, Event{round, old, HeldTill, at + 1000*ms}, Event{round, old, Believed, at + 800*ms})
		token++
		h.Events = append(h.Events, Event{round, token, Granted, at + 1010*ms})
		write(round, "B", "b-1", "a-1", "b-1")
		late := Answer{Round: round, Writer: "A", Element: "a-2", Token: old, Late: true}
		if fenced {
			late.Newer, late.Why = token, "superseded"
		} else {
			late.Accepted = true
			h.Writes = append(h.Writes, Write{Round: round, Writer: "A", Element: "a-2", Token: old, Content: []string{"a-1", "a-2"}})
			h.Content[round] = []string{"a-1", "a-2"}
		}
		h.Answers = append(h.Answers, late)
	}
	return h
}

func demand(rounds int, fenced bool) Demand {
	return Demand{Rounds: rounds, Fenced: fenced, Late: 1, Noticed: true, Handover: 100 * ms}
}

func TestJudgeOnSoundHistories(t *testing.T) {
	v := Judge(sound(3, true), demand(3, true))
	want := Verdict{LateSent: 3, RefusedStale: 3, SuccessorWrites: 3, OK: true, Reclaims: 3, Why: "superseded",
		Handover: &Handover{Rounds: 3, WithinMS: 100, Within: 3, P50US: 10_000, P99US: 10_000, MaxUS: 10_000}}
	if got := fmt.Sprintf("%+v %+v", v, *v.Handover); !v.OK || !sameCounts(v, want) || *v.Handover != *want.Handover {
		t.Errorf("fenced: %s", got)
	}
	v = Judge(sound(3, false), demand(3, false))
	want = Verdict{LateSent: 3, AcceptedStale: 3, SuccessorWrites: 3, LostUpdates: 3, OK: true, Reclaims: 3}
	if !v.OK || !sameCounts(v, want) {
		t.Errorf("unfenced: %+v", v)
	}
}

func sameCounts(a, b Verdict) bool {
	a.Handover, b.Handover = nil, nil
	return fmt.Sprintf("%+v", a) == fmt.Sprintf("%+v", b)
}

// breach is one way in which a history shows that something is broken. says is part of the problem, or empty where
// the counts alone say it.
type breach struct {
	name   string
	spoil  func(h *History)
	says   string
	counts func(v Verdict) bool
}

func lateOf(h *History, round int) *Answer {
	return &h.Answers[slices.IndexFunc(h.Answers, func(a Answer) bool { return a.Round == round && a.Late })]
}

func breaches() []breach {
	return []breach{
		{"a stale write is accepted", func(h *History) {
			late := lateOf(h, 2)
			late.Accepted = true
			h.Writes = append(h.Writes, Write{Round: 2, Writer: "A", Element: "a-2", Token: late.Token, Content: []string{"a-1", "a-2"}})
			h.Content[2] = []string{"a-1", "a-2"}
		}, "", func(v Verdict) bool { return v.AcceptedStale == 1 && v.LostUpdates == 1 }},
		{"a late write is not sent", func(h *History) {
			h.Answers = slices.DeleteFunc(h.Answers, func(a Answer) bool { return a.Round == 2 && a.Late })
		}, "", func(v Verdict) bool { return slices.Equal(v.InvalidRounds, []int{2}) }},
		{"a late write comes before the successor's", func(h *History) {
			h.Writes = slices.DeleteFunc(h.Writes, func(w Write) bool { return w.Round == 2 && w.Writer == "B" })
			h.Answers = slices.DeleteFunc(h.Answers, func(a Answer) bool { return a.Round == 2 && a.Writer == "B" })
			h.Content[2] = []string{"a-1"}
		}, "no successor's write", nil},
		{"a late write carries the newest token", func(h *History) {
			late := lateOf(h, 2)
			late.Accepted, late.Token = true, late.Token+1
			h.Writes = append(h.Writes, Write{Round: 2, Writer: "A", Element: "a-2", Token: late.Token, Content: []string{"a-1", "b-1", "a-2"}})
			h.Content[2] = []string{"a-1", "b-1", "a-2"}
		}, "was not late", nil},
		{"a refused write is in the log", func(h *History) {
			late := lateOf(h, 2)
			h.Writes = append(h.Writes, Write{Round: 2, Writer: "A", Element: "a-2", Token: late.Token, Content: []string{"a-1", "b-1"}})
		}, "is refused, and it is in the log", nil},
		{"a refused write is in the content", func(h *History) {
			i := slices.IndexFunc(h.Writes, func(w Write) bool { return w.Round == 2 && w.Writer == "B" })
			h.Writes[i].Content = []string{"a-1", "b-1", "a-2"}
			h.Content[2] = []string{"a-1", "b-1", "a-2"}
		}, "was refused, and is in the content", nil},
		{"an acknowledged update is lost", func(h *History) {
			i := slices.IndexFunc(h.Writes, func(w Write) bool { return w.Round == 2 && w.Writer == "B" })
			h.Writes[i].Content, h.Content[2] = []string{"b-1"}, []string{"b-1"}
		}, "", func(v Verdict) bool { return v.LostUpdates == 1 }},
		{"the value changes apart from the log", func(h *History) { h.Content[2] = []string{"a-1", "b-1", "x"} }, "is read", nil},
	}
}

// recordBreaches are those in which what was told, logged and granted does not fit together.
func recordBreaches() []breach {
	return []breach{
		{"a write was never answered", func(h *History) {
			h.Answers = slices.DeleteFunc(h.Answers, func(a Answer) bool { return a.Round == 2 && a.Writer == "B" })
		}, "nobody was told", nil},
		{"an answer without a write", func(h *History) {
			h.Answers = append(h.Answers, Answer{Round: 2, Writer: "B", Element: "b-2", Token: 4, Accepted: true})
		}, "the log has no such write", nil},
		{"one write is answered twice", func(h *History) { h.Answers = append(h.Answers, *lateOf(h, 2)) }, "answered twice", nil},
		{"a rightful write is refused", func(h *History) {
			h.Answers = append(h.Answers, Answer{Round: 2, Writer: "B", Element: "b-2", Token: 4, Why: "superseded"})
		}, "the rightful write", nil},
		{"one token has two owners", func(h *History) {
			for i := range h.Writes {
				h.Writes[i].Token = 7
			}
			for i := range h.Answers {
				h.Answers[i].Token = 7
			}
		}, "token 7 was used by", nil},
		{"an element is written twice", func(h *History) { h.Writes = append(h.Writes, h.Writes[len(h.Writes)-1]) }, "was written twice", nil},
		{"the successor does not write", func(h *History) {
			h.Writes = slices.DeleteFunc(h.Writes, func(w Write) bool { return w.Writer == "B" })
			h.Answers = slices.DeleteFunc(h.Answers, func(a Answer) bool { return a.Writer == "B" })
			for round := range h.Content {
				h.Content[round] = []string{"a-1"}
			}
		}, "", func(v Verdict) bool { return v.SuccessorWrites == 0 }},
		{"a successor is granted while the holder holds", func(h *History) { h.Events[1].At += time.Second }, "still held it", nil},
		{"a holder believes into its successor's time", func(h *History) { h.Events[2].At += time.Second }, "still believed to hold", nil},
		{"a successor is granted while the work goes on", func(h *History) {
			h.Events = append(h.Events, Event{2, 3, Worked, h.Events[2].At + time.Hour})
		}, "still worked under it", nil},
		{"a holder never notices", func(h *History) {
			h.Events = slices.DeleteFunc(h.Events, func(e Event) bool { return e.Round == 2 && e.What == Believed })
		}, "did not notice", nil},
		{"hand-overs are slow", func(h *History) {
			for i := range h.Events {
				if h.Events[i].Token%2 == 0 {
					h.Events[i].At += 200 * ms
				}
			}
		}, "", func(v Verdict) bool { return v.Handover.Within == 0 }},
		{"it is not known when a lease was over", func(h *History) { h.Events = nil }, "it is not known when", nil},
		{"an entry of another round", func(h *History) { h.Writes[0].Round = 9 }, "are of no round", nil},
		{"nothing happened", func(h *History) { *h = History{} }, "", func(v Verdict) bool { return len(v.InvalidRounds) == 3 }},
	}
}

func TestJudgeOnBrokenHistories(t *testing.T) {
	for _, b := range append(breaches(), recordBreaches()...) {
		t.Run(b.name, func(t *testing.T) {
			h := sound(3, true)
			b.spoil(&h)
			v := Judge(h, demand(3, true))
			if v.OK {
				t.Errorf("judged ok: %+v", v)
			}
			if b.says != "" && !strings.Contains(strings.Join(v.Problems, "\n"), b.says) {
				t.Errorf("no problem says %q: %q", b.says, v.Problems)
			}
			if b.counts != nil && !b.counts(v) {
				t.Errorf("counts: %+v", v)
			}
		})
	}
}

func TestUnfencedNeedsDamage(t *testing.T) {
	if v := Judge(sound(3, true), demand(3, false)); v.OK {
		t.Errorf("refusals where nothing was to check are ok: %+v", v)
	}
	h := sound(3, false)
	for round := range h.Content { // the late write adds to what the successor wrote: accepted, no damage
		h.Content[round] = []string{"a-1", "b-1", "a-2"}
	}
	for i := range h.Writes {
		if h.Writes[i].Element == "a-2" {
			h.Writes[i].Content = []string{"a-1", "b-1", "a-2"}
		}
	}
	if v := Judge(h, demand(3, false)); v.OK || v.LostUpdates != 0 {
		t.Errorf("no damage is ok: %+v", v)
	}
}

func TestUnsentIsDemandedApart(t *testing.T) {
	h := sound(2, true)
	d := demand(2, true)
	d.Unsent = 1
	if v := Judge(h, d); v.OK || len(v.InvalidRounds) != 2 {
		t.Errorf("no client refused, and it is ok: %+v", v)
	}
	for round := 1; round <= 2; round++ {
		h.Answers = append(h.Answers, Answer{Round: round, Writer: "A", Element: "a-3", Late: true, Unsent: true, Why: "ended"})
	}
	if v := Judge(h, d); !v.OK || v.RefusedBeforeSending != 2 || v.LateSent != 2 {
		t.Errorf("%+v", v)
	}
}

func TestVoidRoundsDoNotCount(t *testing.T) {
	given := func() (History, Demand) { // round 2 of 3 was given up after the holder's first write
		h := sound(3, true)
		keep := func(writer, element string) bool { return writer == "A" && element == "a-1" }
		h.Writes = slices.DeleteFunc(h.Writes, func(w Write) bool { return w.Round == 2 && !keep(w.Writer, w.Element) })
		h.Answers = slices.DeleteFunc(h.Answers, func(a Answer) bool { return a.Round == 2 && !keep(a.Writer, a.Element) })
		h.Events = slices.DeleteFunc(h.Events, func(e Event) bool { return e.Round == 2 })
		h.Content[2] = []string{"a-1"}
		d := demand(2, true)
		d.Void = []int{2}
		return h, d
	}
	h, d := given()
	if v := Judge(h, d); !v.OK || v.LateSent != 2 {
		t.Errorf("%+v", v)
	}
	d.Void = nil
	if v := Judge(h, d); v.OK {
		t.Errorf("a round that stopped half-way counts: %+v", v)
	}
	h, d = given()
	h.Answers = append(h.Answers, Answer{Round: 2, Writer: "A", Element: "a-2", Token: 3, Late: true})
	if v := Judge(h, d); v.OK {
		t.Errorf("a round with a late write was given up: %+v", v)
	}
	h, d = given()
	h.Writes = append(h.Writes, Write{Round: 2, Writer: "B", Element: "b-1", Token: 2, Content: []string{"b-1"}})
	if v := Judge(h, d); v.OK {
		t.Errorf("a round with a stale write was given up: %+v", v)
	}
}

func TestOneSlowHandoverInAHundredIsAllowed(t *testing.T) {
	h := sound(100, true)
	slow := func(round int) {
		for i, e := range h.Events {
			if e.Round == round && e.Token%2 == 0 {
				h.Events[i].At += time.Second
			}
		}
	}
	slow(7)
	if v := Judge(h, demand(100, true)); !v.OK || v.Handover.Within != 99 || v.Handover.MaxUS != 1_010_000 || v.Handover.P99US != 10_000 {
		t.Errorf("one slow: %+v %+v", v, *v.Handover)
	}
	slow(8)
	if v := Judge(h, demand(100, true)); v.OK {
		t.Errorf("two slow ones are ok: %+v", *v.Handover)
	}
}

func TestProblemsAreBounded(t *testing.T) {
	v := Judge(History{Writes: []Write{{Round: 1, Token: 1, Element: "x"}}}, Demand{Rounds: 5000, Noticed: true, Handover: 1})
	if len(v.Problems) != maxProblems {
		t.Errorf("%d problems", len(v.Problems))
	}
}

// TestWorkThatOutlastsItsLease: the successor waits for the end of the work, and the hand-over counts from there.
func TestWorkThatOutlastsItsLease(t *testing.T) {
	given := func() (History, Demand) {
		h := sound(2, true)
		for round := 1; round <= 2; round++ {
			held := latest(h.of(round).Events, HeldTill)
			h.Events = append(h.Events, Event{round, held.Token, Worked, held.At + 5*ms})
		}
		d := demand(2, true)
		d.After, d.Overran = Worked, true
		return h, d
	}
	h, d := given()
	if v := Judge(h, d); !v.OK || v.OverranMS != 5 || v.Handover.MaxUS != 5_000 {
		t.Errorf("%+v %+v", v, v.Handover)
	}
	for name, by := range map[string]time.Duration{"the work ended before the lease": -10 * ms, "a successor came before its end": 10 * ms} {
		h, d := given()
		h.Events[len(h.Events)-1].At += by
		if v := Judge(h, d); v.OK || len(v.Problems) == 0 {
			t.Errorf("%s: %+v", name, v)
		}
	}
}

// TestWritersWithoutAClaim: they are nobody's owners, whatever they write is late once somebody holds, and a refusal must say what it is demanded to.
func TestWritersWithoutAClaim(t *testing.T) {
	given := func(fenced bool) (History, Demand) {
		h := sound(2, fenced)
		for i := range h.Writes {
			if h.Writes[i].Element == "a-2" {
				h.Writes[i].Token, h.Writes[i].Writer = 0, "F"
			}
		}
		for i := range h.Answers {
			if h.Answers[i].Late {
				h.Answers[i].Token, h.Answers[i].Writer, h.Answers[i].Why = 0, "F", "TN013: not presented"
			}
		}
		d := demand(2, fenced)
		d.Told = "TN013"
		return h, d
	}
	h, d := given(true)
	if v := Judge(h, d); !v.OK || v.RefusedStale != 2 || v.SuccessorWrites != 2 {
		t.Errorf("refused: %+v", v)
	}
	lateOf(&h, 2).Why = "23505: duplicate key"
	if v := Judge(h, d); v.OK || !strings.Contains(strings.Join(v.Problems, "\n"), "want \"TN013\"") {
		t.Errorf("refused for another reason: %+v", v)
	}
	h, d = given(false)
	if v := Judge(h, d); !v.OK || v.AcceptedStale != 2 || v.LostUpdates != 2 || v.SuccessorWrites != 2 {
		t.Errorf("accepted: %+v", v)
	}
	d.Fenced = true
	if v := Judge(h, d); v.OK {
		t.Errorf("accepted although the table was protected: %+v", v)
	}
}
