package sqlite

import (
	"testing"

	"github.com/tenure-go/tenure/lease/leasetest"
)

// run plays each case on a fresh file.
func run[H any](t *testing.T, cases []leasetest.Case[H], fresh func(testing.TB) *harness) {
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			if err := c.Run(t.Context(), any(fresh(t)).(H)); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestConformance(t *testing.T) { run(t, leasetest.Cases(), newHarness) }
