package drill

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/tenure-go/tenure/drill/model"
)

// TestFailover: no token comes twice over all branches; with the jump of incarnations left out the drill says that they do.
func TestFailover(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var cases []func(t *testing.T) error
	for _, unfenced := range []bool{false, true} {
		o := Options{Scenario: "failover", Store: "its own", Rounds: 1, Unfenced: unfenced, Self: []string{self, partWord, "sound"}}
		cases = append(cases, func(*testing.T) error {
			r, err := Run(context.Background(), o)
			if err != nil || !r.OK || r.LateWritesSent != 2 || r.Failover == nil {
				return fmt.Errorf("unfenced %v: %+v, %w", unfenced, r, err)
			}
			if (r.Failover.Repeated > 0) != unfenced || r.Failover.Believers < 1 {
				return fmt.Errorf("unfenced %v: %+v", unfenced, r.Failover)
			}
			if unfenced {
				return nil
			}
			return bothForms(r)
		})
	}
	together(t, cases)
}

// bothForms reads the report's JSON, and looks for what must be said to people.
func bothForms(r Report) error {
	var text, table bytes.Buffer
	if err := r.WriteJSON(&text); err != nil {
		return err
	}
	if err := r.WriteTable(&table); err != nil {
		return err
	}
	var read Report
	if err := json.Unmarshal(text.Bytes(), &read); err != nil {
		return err
	}
	if read.Failover.Grants != r.Failover.Grants || len(read.Failover.Branches) != 8 || read.Failover.Branches[0].Branch != model.Primary {
		return fmt.Errorf("JSON: %s", &text)
	}
	for _, want := range []string{notExclusive, "0 repeated", "successors were granted while the former holder believed to hold", "high-water mark"} {
		if !strings.Contains(table.String(), want) {
			return fmt.Errorf("no %q in\n%s", want, &table)
		}
	}
	return nil
}
