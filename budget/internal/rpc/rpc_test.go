package rpc

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tenure-go/tenure/budget"
)

// judge is Answer.Proves, or a twin of it.
type judge func(Answer) *budget.Error

// judged holds a judge to what each answer proves.
func judged(j judge) error {
	var wrong []error
	for name, c := range map[string]struct {
		a     Answer
		class budget.Class
		again bool
		after time.Duration
	}{
		"failed precondition":            {Answer{Code: FailedPrecondition}, budget.Refused, false, 0},
		"the same, begun":                {Answer{Code: FailedPrecondition, Begun: true}, budget.Refused, false, 0},
		"the same, with a hint":          {Answer{Code: FailedPrecondition, Hint: true, RetryAfter: time.Second}, budget.Refused, false, 0},
		"aborted":                        {Answer{Code: Aborted}, budget.Refused, false, 0},
		"unimplemented":                  {Answer{Code: Unimplemented}, budget.Refused, false, 0},
		"an answer that is not readable": {Answer{Code: Unimplemented, Begun: true}, budget.Unknown, false, 0},
		"exhausted":                      {Answer{Code: ResourceExhausted}, budget.Unknown, false, 0},
		"exhausted, with a hint":         {Answer{Code: ResourceExhausted, Hint: true, RetryAfter: time.Second}, budget.Refused, true, time.Second},
		"an answer that is too large":    {Answer{Code: ResourceExhausted, Begun: true}, budget.Unknown, false, 0},
		"unavailable":                    {Answer{Code: Unavailable}, budget.Unknown, false, 0},
		"unavailable, with a hint":       {Answer{Code: Unavailable, Hint: true}, budget.Refused, true, 0},
		"unavailable, begun":             {Answer{Code: Unavailable, Hint: true, Begun: true}, budget.Unknown, false, 0},
		"a hint of years":                {Answer{Code: Unavailable, Hint: true, RetryAfter: 1 << 60}, budget.Refused, true, 24 * time.Hour},
		"a negative hint":                {Answer{Code: Unavailable, Hint: true, RetryAfter: -1}, budget.Refused, true, 0},
		"deadline":                       {Answer{Code: DeadlineExceeded}, budget.Unknown, false, 0},
		"deadline, not started":          {Answer{Code: DeadlineExceeded, NotStarted: true}, budget.Refused, false, 0},
		"cancelled":                      {Answer{Code: Canceled}, budget.Unknown, false, 0},
		"internal":                       {Answer{Code: Internal}, budget.Unknown, false, 0},
		"unknown":                        {Answer{Code: Unknown}, budget.Unknown, false, 0},
		"data loss":                      {Answer{Code: DataLoss}, budget.Unknown, false, 0},
		"no code at all":                 {Answer{Code: 99}, budget.Unknown, false, 0},
	} {
		e := j(c.a)
		if e.Class != c.class || e.Again != c.again || e.RetryAfter != c.after || !errors.Is(e, errTest) {
			wrong = append(wrong, errors.New(name), e)
		}
	}
	return errors.Join(wrong...)
}

func TestAnswers(t *testing.T) {
	if err := judged(func(a Answer) *budget.Error { return a.Proves(errTest) }); err != nil {
		t.Error(err)
	}
}

// TestCredulousJudgesAreCaught: none of these passes [TestAnswers].
func TestCredulousJudgesAreCaught(t *testing.T) {
	for name, change := range map[string]func(Answer) Answer{
		"UNAVAILABLE is always a refusal":     func(a Answer) Answer { a.Hint = true; return a },
		"RESOURCE_EXHAUSTED is one":           func(a Answer) Answer { a.Hint = a.Hint || a.Code == ResourceExhausted; return a },
		"what has begun is not looked at":     func(a Answer) Answer { a.Begun = false; return a },
		"a deadline is always before a start": func(a Answer) Answer { a.NotStarted = true; return a },
	} {
		if judged(func(a Answer) *budget.Error { return change(a).Proves(errTest) }) == nil {
			t.Errorf("%s: it passes", name)
		}
	}
}

// TestTell: a failure is told so that a caller reads the same of it, or less.
func TestTell(t *testing.T) {
	for name, c := range map[string]struct {
		err   error
		code  Code
		class budget.Class
		again bool
		never bool
	}{
		"not sent":                 {&budget.Error{Class: budget.NotSent, Err: errTest}, Unavailable, budget.Refused, true, false},
		"refused":                  {&budget.Error{Class: budget.Refused, Err: errTest}, FailedPrecondition, budget.Refused, false, false},
		"refused for now":          {&budget.Error{Class: budget.Refused, RetryAfter: time.Second, Err: errTest}, Unavailable, budget.Refused, true, false},
		"unknown":                  {&budget.Error{Class: budget.Unknown, Err: errTest}, Unknown, budget.Unknown, false, false},
		"deadline":                 {&budget.Error{Class: budget.Unknown, Err: context.DeadlineExceeded}, DeadlineExceeded, budget.Unknown, false, false},
		"cancelled":                {context.Canceled, Canceled, budget.Unknown, false, false},
		"no time":                  {&budget.NoTimeError{}, DeadlineExceeded, budget.Refused, false, false},
		"no time after an attempt": {&budget.GaveUpError{Why: &budget.NoTimeError{}, Last: errTest, Class: budget.Unknown, Attempts: 1}, DeadlineExceeded, budget.Unknown, false, false},
		"repeated":                 {&budget.GaveUpError{Why: budget.ErrAttempts, Last: &budget.Error{Class: budget.NotSent, Err: errTest}, Class: budget.NotSent, Attempts: 3}, Unavailable, budget.Refused, true, true},
		"throttled":                {&budget.GaveUpError{Why: budget.ErrThrottled, Last: errTest, Class: budget.Unknown, Attempts: 1}, Unknown, budget.Unknown, false, true},
		"repeated, and an earlier attempt is unknown": {&budget.GaveUpError{Why: budget.ErrAttempts, Last: &budget.Error{Class: budget.NotSent, Err: errTest}, Class: budget.Unknown, Attempts: 3}, Unknown, budget.Unknown, false, true},
		"anything": {errTest, Unknown, budget.Unknown, false, false},
	} {
		told := Tell(c.err)
		read := Answer{Code: told.Code, Hint: told.Hint, RetryAfter: told.RetryAfter, NoRetry: told.NoRetry, NotStarted: told.NotStarted}.Proves(errTest)
		if told.Code != c.code || read.Class != c.class || read.Again != c.again || read.NoRetry != c.never {
			t.Errorf("%s: %+v, read as %+v", name, told, read)
		}
	}
}
