package drill

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tenure-go/tenure/drill/model"
	"github.com/tenure-go/tenure/fence"
)

// The length of a story second on a real clock. A machine that is too slow for it is given more.
const (
	firstUnit = 150 * time.Millisecond
	lastUnit  = 8 * firstUnit
)

// storyOnStore plays the story with real processes on the authority's own clock, scaled down. If a step came when its story
// second was over, which says something of this machine and nothing of the store, all is played again at half the speed.
func storyOnStore(ctx context.Context, o Options, sc Scenario) (Report, error) {
	for unit := firstUnit; ; unit *= 2 {
		r, err := storyAtScale(ctx, o, sc, unit)
		if !errors.Is(err, errTooSlow) || unit >= lastUnit || ctx.Err() != nil {
			return r, err
		}
		if o.Progress != nil {
			fmt.Fprintf(o.Progress, "drill story: %v; again with a story second of %v\n", err, 2*unit)
		}
	}
}

// storyAtScale plays all rounds once.
func storyAtScale(ctx context.Context, o Options, sc Scenario, unit time.Duration) (r Report, err error) {
	var mu sync.Mutex
	all := map[int][]StoryStep{}
	sc.play = func(ctx context.Context, r *round) error {
		lines, err := r.story(ctx, unit)
		mu.Lock()
		defer mu.Unlock()
		all[r.n] = lines
		return err
	}
	o.Progress = nil
	c, err := prepare(ctx, o, sc)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, c.cleanUp(ctx)) }()
	c.playAll(ctx)
	if ctx.Err() != nil {
		return r, nil
	}
	if failed := errors.Join(c.failures...); errors.Is(failed, errTooSlow) {
		return r, failed
	}
	var lines []StoryStep
	for n := 1; n <= o.Rounds; n++ {
		lines = append(lines, all[n]...)
	}
	v, err := askJudge(ctx, o.Self, question{place: o.place(), Run: c.run, Story: true, Demand: model.Demand{Rounds: o.Rounds, Fenced: !o.Unfenced}})
	return storyReport(v, lines, c.failures), err
}

// story plays the story with three processes.
func (r *round) story(ctx context.Context, unit time.Duration) ([]StoryStep, error) {
	r.sent = true // if a step goes wrong, that is no reason to try once more
	procs := map[string]*process{}
	for _, who := range []string{"A", "B", "C"} {
		p, err := r.spawn(who)
		if err != nil {
			return nil, err
		}
		if err := steps(ctx, p, command{Op: opRead}); err != nil { // it is up
			return nil, err
		}
		procs[who] = p
	}
	began := r.c.now()
	since := func() time.Duration { return r.c.now() - began }
	s := &stage{round: r.n, name: r.name, store: r.c.store, now: since, unit: unit}
	s.act = func(ctx context.Context, step model.Step, foreign fence.Claim) (played, error) {
		c := command{Op: opStory, Name: r.name, TTL: millis(unit), Step: &step}
		if foreign.Token > 0 {
			c.Claim = foreign.String()
		}
		p := procs[step.Who]
		answer, err := p.call(ctx, c)
		if err != nil {
			return played{}, err
		}
		got := played{outcome: answer.Outcome, told: answer.Told, read: answer.Content}
		if answer.Claim != "" {
			got.claim, err = fence.ParseClaim(answer.Claim)
		}
		return got, err
	}
	s.reach = func(ctx context.Context, step model.Step) error {
		if !sleep(ctx, time.Duration(step.At)*unit-since()) {
			return context.Cause(ctx)
		}
		if step.Over {
			return r.untilFree(ctx)
		}
		return nil
	}
	s.stepBack = func(int) string {
		return r.c.site.traits().noStepBack
	}
	return s.play(ctx)
}

// untilFree waits until the authority says that nobody holds.
func (r *round) untilFree(ctx context.Context) error {
	for {
		info, err := r.c.store.Get(ctx, r.name)
		if err != nil || !info.Held {
			return err
		}
		if !sleep(ctx, stopPoll) {
			return context.Cause(ctx)
		}
	}
}
