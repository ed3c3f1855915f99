package drill

import (
	"context"
	"fmt"
	"strings"
	"testing"
)

// TestInsideTransactions: the variants as they must be, and the lost update without verify.
func TestInsideTransactions(t *testing.T) {
	t.Parallel()
	var cases []func(t *testing.T) error
	for _, unfenced := range []bool{false, true} {
		o := onPostgres(t, "pause-in-transaction", "sound", 2)
		o.Unfenced = unfenced
		cases = append(cases, func(*testing.T) error {
			r, err := Run(context.Background(), o)
			late, accepted := 6, 0
			if unfenced {
				late, accepted = 2, 2
			}
			if err != nil || !r.OK || r.LateWritesSent != late || r.AcceptedStale != accepted || (r.LostUpdates > 0) != unfenced {
				return fmt.Errorf("unfenced %v: %+v, %w", unfenced, r, err)
			}
			for _, v := range r.Variants {
				if strings.HasPrefix(v.Name, "stopped") && !strings.Contains(v.Told, "25P03") {
					return fmt.Errorf("%s was told %q, want the server's idle bound (25P03)", v.Name, v.Told)
				}
				if v.Name == "busy" && v.OverranMS < insideBusy.Milliseconds()/2 {
					return fmt.Errorf("it was busy for %d ms past its lease", v.OverranMS)
				}
			}
			return nothingLeft(o)
		})
	}
	together(t, cases)
}

// TestInsideTransactionsUnverified: a resource that says that it verifies, and does not, is found out.
func TestInsideTransactionsUnverified(t *testing.T) {
	t.Parallel()
	sc, _ := find("pause-in-transaction")
	var cases []func(t *testing.T) error
	for _, v := range insideVariants(false) {
		var shows func(Report) bool
		switch v.Name {
		case "stopped-before-write":
			shows = func(r Report) bool { return r.AcceptedStale == 2 && r.LostUpdates == 2 }
		case "busy":
			shows = says("still worked under it")
		default:
			continue
		}
		o := onPostgres(t, sc.Name, "blind", 2)
		cases = append(cases, func(*testing.T) error {
			r, err := conduct(context.Background(), o, v.scenario(sc))
			if err != nil || r.OK || !shows(r) {
				return fmt.Errorf("%s: %+v, %w", v.Name, r, err)
			}
			return nil
		})
	}
	together(t, cases)
}
