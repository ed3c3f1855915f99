package budgethttp

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/tenure-go/tenure/budget"
)

// TestWhatWasRepeatedDeeperIsTold: by one Do within another, and by one of two whose failures are joined. Else the caller repeats it again.
func TestWhatWasRepeatedDeeperIsTold(t *testing.T) {
	b, err := budget.Start(t.Context(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	defer b.End()
	policy := budget.Policy{Base: 1, Most: 1}
	unsent := func(context.Context) error { return &budget.Error{Class: budget.NotSent, Err: errors.New("x")} }
	repeated := budget.Do(b.Context(), policy, unsent)
	around := budget.Do(b.Context(), policy, func(ctx context.Context) error { return budget.Do(ctx, policy, unsent) })
	single := budget.Do(budget.NoRetry(b.Context()), policy, unsent)
	for name, c := range map[string]struct {
		err  error
		want bool
	}{
		"repeated": {repeated, true}, "a Do around it": {around, true}, "joined": {errors.Join(single, repeated), true}, "not repeated": {single, false},
		"two answers, of which one asks for peace": {errors.Join(unsent(t.Context()), &budget.Error{Class: budget.Unknown, NoRetry: true, Err: errors.New("y")}), true},
	} {
		answer := httptest.NewRecorder()
		if Fail(answer, c.err); (answer.Header().Get(budget.HeaderNoRetry) == "1") != c.want {
			t.Errorf("%s: %v is answered with %v", name, c.err, answer.Header())
		}
	}
}

// TestAnAnswerSaysWhatIsKnownNow: a handler that has copied the headers of an answer from below, as proxies do, does not say by them that nothing was started.
func TestAnAnswerSaysWhatIsKnownNow(t *testing.T) {
	answer := httptest.NewRecorder()
	answer.Header().Set(budget.HeaderNotStarted, "1")
	answer.Header().Set("Retry-After", "1")
	Fail(answer, &budget.Error{Class: budget.Unknown, Err: errors.New("x")})
	resp := answer.Result()
	defer resp.Body.Close()
	if class := budget.ClassOf(ErrorOf(resp)); resp.StatusCode != http.StatusGatewayTimeout || class != budget.Unknown {
		t.Errorf("%v of %v", class, resp.Header)
	}
}
