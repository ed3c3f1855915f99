package sqlite

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/tenure-go/tenure/operation"
)

// Prune forgets in several transactions. Where a later one fails, what the earlier ones have forgotten is forgotten: nobody is told that nothing was.
func TestPruneThatFailsHalfWayIsUnknown(t *testing.T) {
	t.Parallel()
	s := openPath(t, newPath(t))
	ops := s.Operations()
	for i := range 2 * pruneAtOnce {
		id := fmt.Sprintf("o%03d", i)
		if _, err := ops.Submit(t.Context(), submission(id)); err != nil {
			t.Fatal(err)
		}
		if _, err := ops.Cancel(t.Context(), id, "no more"); err != nil {
			t.Fatal(err)
		}
	}
	plainExec(t, s.path, fmt.Sprintf(`CREATE TRIGGER refuse BEFORE UPDATE ON tenure_operation WHEN new.id = 'o%03d' BEGIN SELECT raise(ABORT, 'the test refuses'); END`, 2*pruneAtOnce-1))
	req := operation.PruneRequest{Bodies: time.Nanosecond, Limit: operation.MaxPrune}
	_, err := ops.Prune(t.Context(), req)
	if !errors.Is(err, operation.ErrUnknown) || errors.Is(err, operation.ErrUnavailable) {
		t.Errorf("the second half failed: %v; want ErrUnknown alone", err)
	}
	if rec, err := ops.Get(t.Context(), "o000"); err != nil || rec.Kept != operation.WithoutBodies {
		t.Errorf("of the first half: kept %d, %v", rec.Kept, err)
	}
	if _, err = ops.Prune(t.Context(), req); !errors.Is(err, operation.ErrUnavailable) || errors.Is(err, operation.ErrUnknown) {
		t.Errorf("nothing was forgotten: %v; want ErrUnavailable alone", err)
	}
	plainExec(t, s.path, `DROP TRIGGER refuse`)
	if p, err := ops.Prune(t.Context(), req); err != nil || p.Bodies != pruneAtOnce {
		t.Errorf("asked again: %+v, %v", p, err)
	}
}
