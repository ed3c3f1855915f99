package model

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/tenure-go/tenure/fence"
)

func TestTheModelPlaysItsStory(t *testing.T) {
	var s Seed
	tokens, err := Play(&s, Story())
	if err != nil {
		t.Fatal(err)
	}
	if len(tokens) != 4 || !slices.IsSorted(tokens) || tokens[0] == tokens[3] {
		t.Errorf("tokens %v", tokens)
	}
	if s.Read() != "c-1" || s.Left() != 4 {
		t.Errorf("%q is read, %d left", s.Read(), s.Left())
	}
}

// TestAStoryThatIsToldWrongIsNoticed turns the outcome of one step at a time.
func TestAStoryThatIsToldWrongIsNoticed(t *testing.T) {
	for i := range Story() {
		steps := Story()
		if steps[i].Want == Done {
			steps[i].Want = Refused
		} else {
			steps[i].Want = Done
		}
		if _, err := Play(new(Seed), steps); err == nil {
			t.Errorf("step %q passes with the other outcome", steps[i].Says)
		}
	}
}

func TestSeedRules(t *testing.T) {
	var s Seed
	token, err := s.Acquire("A", 5)
	if err != nil || token != 1 {
		t.Fatal(token, err)
	}
	check := func(what string, got, want error) {
		t.Helper()
		if !errors.Is(got, want) {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	_, err = s.Acquire("A", 5)
	check("the holder acquires", err, ErrHeld)
	check("another owner under the token", s.Write("B", token, "x"), ErrStale)
	check("the owner under another token", s.Write("A", token+1, "x"), ErrStale)
	check("negative renewal", s.Renew("A", token, -1), ErrInvalid)
	check("clock to equality", s.SetClock(5), nil)
	check("write at equality", s.Write("A", token, "x"), ErrStale)
	check("renew at equality", s.Renew("A", token, 5), ErrStale)
	check("release at equality", s.Release("A", token), ErrStale)
	check("clock back", s.SetClock(4), ErrInvalid)
	if next, err := s.Acquire("B", 1); err != nil || next != 2 {
		t.Error(next, err)
	}
}

// told is the history of a resource that did what the story says.
func told(rounds int, fenced bool) History {
	h := History{Content: map[int][]string{}}
	for round := 1; round <= rounds; round++ {
		base := fence.Token(10 * round)
		for _, step := range Story() {
			if step.Do != DoWrite {
				continue
			}
			accepted := step.Want == Done || !fenced
			token := base + fence.Token(step.Grant)
			h.Answers = append(h.Answers, Answer{Round: round, Writer: step.Who, Element: step.Value, Token: token, Accepted: accepted, Late: step.Want == Refused})
			if accepted {
				h.Writes = append(h.Writes, Write{Round: round, Writer: step.Who, Element: step.Value, Token: token, Content: []string{step.Value}})
				h.Content[round] = []string{step.Value}
			}
		}
	}
	return h
}

func TestJudgeStory(t *testing.T) {
	v := JudgeStory(told(2, true), 2, true)
	if !v.OK || v.LateSent != 6 || v.RefusedStale != 6 || v.SuccessorWrites != 6 || v.AcceptedStale != 0 {
		t.Errorf("fenced: %+v", v)
	}
	v = JudgeStory(told(2, false), 2, false)
	if !v.OK || v.LateSent != 6 || v.AcceptedStale != 6 {
		t.Errorf("unfenced: %+v", v)
	}
	if v = JudgeStory(told(2, false), 2, true); v.OK || v.AcceptedStale != 6 {
		t.Errorf("unfenced judged as fenced: %+v", v)
	}
	if v = JudgeStory(told(2, true), 2, false); v.OK {
		t.Errorf("fenced judged as unfenced: %+v", v)
	}
}

func TestJudgeStoryOnBrokenHistories(t *testing.T) {
	for name, spoil := range map[string]func(h *History){
		"a write is missing": func(h *History) { h.Writes = slices.Delete(h.Writes, 1, 2) },
		"a refused write was not sent": func(h *History) {
			h.Answers = slices.DeleteFunc(h.Answers, func(a Answer) bool { return a.Element == "a-4" })
		},
		"a token comes again": func(h *History) {
			for i := range h.Writes {
				if h.Writes[i].Element == "b-2" {
					h.Writes[i].Token = 12
				}
			}
		},
		"one grant, two tokens":  func(h *History) { h.Writes[1].Token++ },
		"another value is read":  func(h *History) { h.Content[1] = []string{"b-2"} },
		"an answer is missing":   func(h *History) { h.Answers = h.Answers[1:] },
		"nothing was written":    func(h *History) { *h = History{} },
		"an entry of no round":   func(h *History) { h.Content[3] = []string{"x"} },
		"the order is different": func(h *History) { h.Writes[0], h.Writes[1] = h.Writes[1], h.Writes[0] },
	} {
		h := told(1, true)
		spoil(&h)
		if v := JudgeStory(h, 1, true); v.OK {
			t.Errorf("%s: judged ok: %s", name, strings.Join(v.Problems, "; "))
		}
	}
}
