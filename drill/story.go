package drill

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tenure-go/tenure/drill/model"
	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/lease"
	"github.com/tenure-go/tenure/store/memory"
)

// stage is where the story is played: a store, its owners, and a clock.
type stage struct {
	round int
	name  string // that is leased
	store lease.Store
	act   func(ctx context.Context, step model.Step, foreign fence.Claim) (played, error)
	// reach waits until the story's time has come; stepBack tries to set the clock back and says what came of it.
	reach    func(ctx context.Context, step model.Step) error
	stepBack func(to int) string
	now      func() time.Duration // that reach goes by
	unit     time.Duration        // of a story second
	exact    bool                 // the clock stands still between the steps

	till time.Duration // the holder has at least until then; 0: nobody holds
}

// play plays the whole story and returns a line for each step. It returns an error matching errTooSlow if this machine was,
// and any other if a step could not be asked at all.
func (s *stage) play(ctx context.Context) ([]StoryStep, error) {
	claims := map[int]fence.Claim{}
	var lines []StoryStep
	for _, step := range model.Story() {
		if err := s.reach(ctx, step); err != nil {
			return lines, err
		}
		before, err := s.store.Get(ctx, s.name)
		if err != nil {
			return lines, err
		}
		sent := s.now()
		p, err := s.carryOut(ctx, step, claims[step.Grant])
		if err != nil {
			return lines, fmt.Errorf("t=%d: %s: %w", step.At, step.Says, err)
		}
		after, err := s.store.Get(ctx, s.name)
		if err != nil {
			return lines, err
		}
		if s.outlived(step, p, sent) {
			return lines, fmt.Errorf("t=%d: %s: %w", step.At, step.Says, errTooSlow)
		}
		line := StoryStep{Round: s.round, At: step.At, Says: step.Says, Told: p.told, Pass: p.outcome == step.Want}
		if step.Want != model.Done && step.Do != model.DoWrite && !s.unchanged(before, after) {
			line.Pass, line.Told = false, line.Told+"; it changed the lease"
		}
		if step.Do == model.DoRead && !slices.Equal(p.read, []string{step.Value}) {
			line.Pass = false
		}
		if step.Do == model.DoAcquire && p.outcome == model.Done {
			line.Pass = line.Pass && p.claim.Token > claims[step.Grant-1].Token
			claims[step.Grant] = p.claim
		}
		lines = append(lines, line)
	}
	return lines, nil
}

// outlived keeps account of the holder's time, and reports whether it ran out before the step was over although the story
// has it go on.
func (s *stage) outlived(step model.Step, p played, sent time.Duration) bool {
	if step.Over {
		s.till = 0
	}
	late := s.till > 0 && s.now() >= s.till
	if p.outcome == model.Done {
		switch step.Do {
		case model.DoAcquire, model.DoRenew:
			s.till = sent + model.StoryTTL*s.unit
		case model.DoRelease:
			s.till = 0
		default:
		}
	}
	return late
}

func (s *stage) carryOut(ctx context.Context, step model.Step, foreign fence.Claim) (played, error) {
	if step.Do == model.DoSetClock {
		return played{outcome: model.Rejected, told: s.stepBack(step.To)}, nil
	}
	return s.act(ctx, step, foreign)
}

// unchanged compares what the authority says of the name. Time may pass, but never back.
func (s *stage) unchanged(before, after lease.Info) bool {
	older := after.Remaining <= before.Remaining
	if s.exact {
		older = after.Remaining == before.Remaining
	}
	before.Remaining, after.Remaining = 0, 0
	// That an expired lease was asked about may be written down meanwhile; it is over either way.
	return older && (before == after || !before.Held && !after.Held && before.Token == after.Token)
}

// storyReport puts the lines beside the verdict. The resource knows nothing of what the authority answered: so each line must
// have passed too, but for the stale writes that the resource accepted.
func storyReport(v model.Verdict, lines []StoryStep, failures []error) Report {
	r := reportOf(v, failures)
	r.Steps = lines
	failed := 0
	for _, l := range lines {
		if !l.Pass {
			failed++
		}
	}
	r.OK = r.OK && len(lines) > 0 && failed == v.AcceptedStale
	return r
}

// shelf is a resource in memory, for the story: one value a round.
type shelf struct {
	mu      sync.Mutex
	history model.History
}

func (s *shelf) apply(w writing) {
	content := append(slices.Clone(w.base), w.element)
	s.history.Content[w.round] = content
	s.history.Writes = append(s.history.Writes, model.Write{Round: w.round, Writer: w.writer, Element: w.element, Token: w.claim.Token, Content: content})
}

// write writes under the store's strict check, or without any.
func (s *shelf) write(ctx context.Context, store *memory.Store, w writing, fenced bool) (model.Answer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var err error
	if fenced {
		err = store.Fenced(ctx, w.claim, func(context.Context) error { s.apply(w); return nil })
	} else {
		s.apply(w)
	}
	a := model.Answer{Round: w.round, Writer: w.writer, Element: w.element, Token: w.claim.Token, Late: w.late, Accepted: err == nil}
	var refused *fence.RefusedError
	if errors.As(err, &refused) {
		a.Newer, a.Why = refused.Newer, refused.Why.String()
	} else if err != nil {
		return a, err
	}
	s.history.Answers = append(s.history.Answers, a)
	return a, nil
}

// storyInMemory plays the story on the authority in memory, with a manual clock that stands still between the steps:
// expiry is tried at equality.
func storyInMemory(ctx context.Context, o Options) (Report, error) {
	res := &shelf{history: model.History{Content: map[int][]string{}}}
	var lines []StoryStep
	for round := 1; round <= o.Rounds; round++ {
		played, err := memoryStage(res, round, !o.Unfenced).play(ctx)
		lines = append(lines, played...)
		if err != nil {
			return Report{Steps: lines}, err
		}
	}
	v, err := askJudge(ctx, o.Self, question{Story: true, History: &res.history, Demand: model.Demand{Rounds: o.Rounds, Fenced: !o.Unfenced}})
	return storyReport(v, lines, nil), err
}

func memoryStage(res *shelf, round int, fenced bool) *stage {
	var mu sync.Mutex
	var now time.Duration
	clock := func() time.Duration {
		mu.Lock()
		defer mu.Unlock()
		return now
	}
	set := func(to int) {
		mu.Lock()
		defer mu.Unlock()
		now = time.Duration(to) * time.Second
	}
	store := memory.New(memory.Options{Clock: clock})
	s := &stage{round: round, name: "story", store: store, now: clock, unit: time.Second, exact: true}
	actors := map[string]*actor{}
	for _, who := range []string{"A", "B", "C"} {
		actors[who] = &actor{who: who, store: store, unit: time.Second, name: s.name, grants: map[int]*grant{},
			write: func(ctx context.Context, element string, claim fence.Claim, late bool) (model.Answer, error) {
				return res.write(ctx, store, writing{round: round, writer: who, element: element, claim: claim, late: late}, fenced)
			},
			read: func(context.Context) ([]string, error) { return res.history.Content[round], nil }}
	}
	s.act = func(ctx context.Context, step model.Step, foreign fence.Claim) (played, error) {
		return actors[step.Who].play(ctx, step, foreign)
	}
	s.reach = func(_ context.Context, step model.Step) error {
		set(step.At)
		return nil
	}
	s.stepBack = func(to int) string {
		set(to)
		return fmt.Sprintf("the clock was set to %d, and the authority's time stood still", to)
	}
	return s
}
