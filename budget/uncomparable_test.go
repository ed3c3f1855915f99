package budget

import (
	"context"
	"strings"
	"testing"
	"time"
)

// failures is an error that Go cannot compare, as those of validators are.
type failures []string

func (f failures) Error() string { return strings.Join(f, ", ") }

// TestErrorsThatCannotBeCompared: what an attempt failed with may be of any type, and the error of Do has a text all the same.
func TestErrorsThatCannotBeCompared(t *testing.T) {
	b := start(t, time.Minute)
	err := Do(b.Context(), Policy{Attempts: 1}, func(context.Context) error { return failures{"name", "age"} })
	if err == nil || !strings.HasSuffix(err.Error(), "unknown: name, age") {
		t.Error(err)
	}
}
