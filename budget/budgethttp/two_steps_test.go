package budgethttp

import (
	"context"
	"errors"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/tenure-go/tenure/budget"
)

// TestTwoSteps: a handler whose first step was made and whose second found no time says that by the class, and not that nothing was started.
func TestTwoSteps(t *testing.T) {
	b, err := budget.Start(t.Context(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	defer b.End()
	second := budget.Do(b.Context(), budget.Policy{Try: budget.Try{Minimum: time.Hour}}, func(context.Context) error { return nil })
	if !errors.Is(second, budget.ErrNoTime) {
		t.Fatal(second)
	}
	for class, err := range map[budget.Class]error{budget.Refused: second, budget.Unknown: &budget.Error{Class: budget.Unknown, Err: second}} {
		answer := httptest.NewRecorder()
		Fail(answer, err)
		resp := answer.Result()
		if got := budget.ClassOf(ErrorOf(resp)); got != class {
			t.Errorf("%v is read as %v, want %v", err, got, class)
		}
		resp.Body.Close()
	}
}
