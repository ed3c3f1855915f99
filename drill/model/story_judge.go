package model

import (
	"errors"
	"slices"

	"github.com/tenure-go/tenure/fence"
)

// JudgeStory says whether each of the rounds wrote what the serial model writes: the same elements accepted, in the
// same order, the same ones refused, tokens that rise from grant to grant, and the same value in the end. Without
// enforcement it demands that what the model refuses was accepted.
//
// A stale write here is one that the model refuses; an update is lost if the model accepts it and the log does not have it.
func JudgeStory(h History, rounds int, fenced bool) Verdict {
	var v Verdict
	if rounds < 1 {
		v.problem("no round was demanded")
	}
	for round := 1; round <= rounds; round++ {
		storyRound(&v, h.of(round), round, fenced)
	}
	if stray := h.outside(rounds); stray > 0 {
		v.problem("%d entries are of no round", stray)
	}
	v.OK = len(v.Problems) == 0 && len(v.InvalidRounds) == 0 && v.LateSent > 0 && v.SuccessorWrites > 0 && v.LostUpdates == 0
	if fenced {
		v.OK = v.OK && v.AcceptedStale == 0 && v.RefusedStale == v.LateSent
	} else {
		v.OK = v.OK && v.RefusedStale == 0 && v.AcceptedStale == v.LateSent
	}
	return v
}

func storyRound(v *Verdict, h History, round int, fenced bool) {
	accepted := storyWrites(Done)
	refused := storyWrites(Refused)
	answers := map[string]Answer{}
	for _, a := range h.Answers {
		answers[a.Element] = a
	}
	for _, step := range refused {
		a, ok := answers[step.Value]
		if !ok {
			v.InvalidRounds = append(v.InvalidRounds, round)
			continue
		}
		v.LateSent++
		if a.Accepted {
			v.AcceptedStale++
		} else {
			v.RefusedStale++
		}
	}
	want := accepted
	if !fenced {
		want = storyWrites(Done, Refused)
	}
	if got := h.Writes; !slices.EqualFunc(got, want, func(w Write, s Step) bool { return w.Element == s.Value }) {
		v.problem("round %d: the log has %q, the story writes %q", round, elements(got), values(want))
	}
	for _, step := range accepted {
		w, ok := find(h.Writes, step.Value)
		switch {
		case !ok:
			v.LostUpdates++
		case !answers[step.Value].Accepted:
			v.problem("round %d: %s was not told that %q is accepted", round, step.Who, step.Value)
		case step.Grant > 1 && w.Writer == step.Who:
			v.SuccessorWrites++
		}
	}
	storyTokens(v, h, round)
	judgeRecord(v, h, round)
	if content := h.Content[round]; !slices.Equal(content, []string{storyEnd()}) {
		v.problem("round %d: %q is read in the end, not %q", round, content, storyEnd())
	}
}

// storyTokens demands that the tokens under which the grants wrote rise strictly, and are one for each grant.
func storyTokens(v *Verdict, h History, round int) {
	byGrant := map[int]fence.Token{}
	for _, step := range storyWrites(Done) {
		w, ok := find(h.Writes, step.Value)
		if !ok {
			continue
		}
		if before, known := byGrant[step.Grant]; known && before != w.Token {
			v.problem("round %d: grant %d wrote under tokens %d and %d", round, step.Grant, before, w.Token)
		}
		byGrant[step.Grant] = w.Token
	}
	for grant := 2; byGrant[grant] != 0; grant++ {
		if byGrant[grant] <= byGrant[grant-1] {
			v.problem("round %d: token %d of grant %d is not above token %d of the grant before", round, byGrant[grant], grant, byGrant[grant-1])
		}
	}
}

// storyWrites are the story's writes with one of the outcomes, in order.
func storyWrites(want ...Outcome) []Step {
	return filter(Story(), func(s Step) bool { return s.Do == DoWrite && slices.Contains(want, s.Want) })
}

// storyEnd is what the serial model holds after the story.
func storyEnd() string {
	var s Seed
	if _, err := Play(&s, Story()); err != nil {
		return errors.Join(errors.New("the model does not play its own story"), err).Error()
	}
	return s.Read()
}

func find(writes []Write, element string) (Write, bool) {
	i := slices.IndexFunc(writes, func(w Write) bool { return w.Element == element })
	if i < 0 {
		return Write{}, false
	}
	return writes[i], true
}

func elements(writes []Write) []string {
	var all []string
	for _, w := range writes {
		all = append(all, w.Element)
	}
	return all
}

func values(steps []Step) []string {
	var all []string
	for _, s := range steps {
		all = append(all, s.Value)
	}
	return all
}
