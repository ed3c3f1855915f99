package drill

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/tenure-go/tenure/drill/model"
)

// Report is what a drill came to. Its JSON form keeps the order of the fields.
type Report struct {
	Scenario        string `json:"scenario"`
	Store           string `json:"store"`
	Rounds          int    `json:"rounds"`
	Fenced          bool   `json:"fenced"`
	LateWritesSent  int    `json:"late_writes_sent"`
	AcceptedStale   int    `json:"accepted_stale_writes"`
	RefusedStale    int    `json:"refused_stale_writes"`
	SuccessorWrites int    `json:"successor_writes"`
	LostUpdates     int    `json:"lost_updates"`
	OK              bool   `json:"ok"`

	InvalidRounds        []int           `json:"invalid_rounds"`
	ReplayedRounds       int             `json:"replayed_rounds"` // begun again, because this machine was too slow for their TTL
	RefusedBeforeSending int             `json:"refused_before_sending"`
	Reclaims             int             `json:"reclaims"`
	Handover             *model.Handover `json:"handover,omitempty"`
	Steps                []StoryStep     `json:"steps,omitempty"`
	Check                string          `json:"check,omitempty"` // "high-water" where the resource checks its mark
	Variants             []Variant       `json:"variants,omitempty"`
	Failover             *model.Failover `json:"failover,omitempty"`
	Payments             *model.Payments `json:"payments,omitempty"`
	Sales                *model.Sales    `json:"sales,omitempty"`
	Mail                 *model.Mail     `json:"messages,omitempty"`
	Problems             []string        `json:"problems,omitempty"`
	RunMS                int64           `json:"run_ms"`

	overranMS int64  // of a part of a drill
	why       string // what the last refused late write was told
}

// StoryStep is one line of the story.
type StoryStep struct {
	Round int    `json:"round"`
	At    int    `json:"at"` // story seconds
	Pass  bool   `json:"pass"`
	Says  string `json:"says"`
	Told  string `json:"told"` // what the store or the resource answered
}

// maxFailures bounds how many rounds that could not be played are told one by one.
const maxFailures = 10

// reportOf is a verdict with what went wrong in playing; a drill that could not be played as it should is never ok.
func reportOf(v model.Verdict, failures []error) Report {
	r := Report{LateWritesSent: v.LateSent, AcceptedStale: v.AcceptedStale, RefusedStale: v.RefusedStale,
		SuccessorWrites: v.SuccessorWrites, LostUpdates: v.LostUpdates, OK: v.OK && len(failures) == 0,
		InvalidRounds: v.InvalidRounds, RefusedBeforeSending: v.RefusedBeforeSending, Reclaims: v.Reclaims,
		Handover: v.Handover, Failover: v.Failover, Problems: v.Problems, overranMS: v.OverranMS, why: v.Why}
	if r.InvalidRounds == nil {
		r.InvalidRounds = []int{}
	}
	for i, err := range failures {
		if i == maxFailures {
			r.Problems = append(r.Problems, fmt.Sprintf("%d more rounds could not be played", len(failures)-i))
			break
		}
		r.Problems = append(r.Problems, err.Error())
	}
	return r
}

// WriteJSON writes the report as one line.
func (r Report) WriteJSON(to io.Writer) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	_, err = to.Write(append(text, '\n'))
	return err
}

// WriteTable writes the report for people.
func (r Report) WriteTable(to io.Writer) error {
	t := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	for _, s := range r.Steps {
		word := "FAIL"
		if s.Pass {
			word = "PASS"
		}
		if r.Rounds > 1 {
			fmt.Fprintf(t, "%s\tround %d, t=%d\t%s\t%s\n", word, s.Round, s.At, s.Says, s.Told)
			continue
		}
		fmt.Fprintf(t, "%s\tt=%d\t%s\t%s\n", word, s.At, s.Says, s.Told)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(t, "drill %s\t%s, on %s\n", r.Scenario, r.enforcement(), r.Store)
	if r.Payments != nil {
		r.writePayments(t)
		return t.Flush()
	}
	if r.Sales != nil {
		r.writeSales(t)
		return t.Flush()
	}
	if r.Mail != nil {
		r.writeMail(t)
		return t.Flush()
	}
	rows := []struct {
		what  string
		count int
	}{
		{"rounds", r.Rounds}, {"late writes sent", r.LateWritesSent}, {"  accepted by the resource", r.AcceptedStale},
		{"  refused by the resource", r.RefusedStale}, {"successors' writes", r.SuccessorWrites}, {"lost updates", r.LostUpdates},
	}
	if r.RefusedBeforeSending > 0 {
		rows = slices.Insert(rows, 2, struct {
			what  string
			count int
		}{"  refused before sending", r.RefusedBeforeSending})
	}
	for _, row := range rows {
		fmt.Fprintf(t, "%s\t%d\n", row.what, row.count)
	}
	r.writeRest(t)
	return t.Flush()
}

// enforcement says what was checked.
func (r Report) enforcement() string {
	switch {
	case r.Payments != nil && r.Fenced:
		return "fenced: decided is what is known"
	case r.Payments != nil:
		return "unfenced: without what prevents the damage"
	case r.Sales != nil && r.Fenced:
		return "fenced: what is sold is what its hold says"
	case r.Sales != nil:
		return "unfenced: holds in a table of the application's own"
	case r.Mail != nil && r.Fenced:
		return "fenced: claims with tokens, and a consumer with an inbox"
	case r.Mail != nil:
		return "unfenced: without what prevents the damage"
	case !r.Fenced && r.Failover != nil:
		return "unfenced: a new incarnation does not jump"
	case !r.Fenced:
		return "unfenced: the resource does not check claims"
	case r.Check != "":
		return "fenced: the resource checks each claim against its " + r.Check + " mark"
	}
	return "fenced: the resource checks each claim"
}

// writeRest writes what is only said where there is something to say, and the verdict.
func (r Report) writeRest(t io.Writer) {
	for _, v := range r.Variants {
		v.write(t)
	}
	if r.Failover != nil {
		writeFailover(t, r.Failover)
	}
	if h := r.Handover; h != nil {
		fmt.Fprintf(t, "granted after the holder's expiry\tp50 %.1f ms, p99 %.1f ms, max %.1f ms\n",
			float64(h.P50US)/1000, float64(h.P99US)/1000, float64(h.MaxUS)/1000)
		if h.WithinMS > 0 {
			fmt.Fprintf(t, "  within %d ms\t%d of %d rounds\n  before the expiry\t%d of %d rounds\n", h.WithinMS, h.Within, h.Rounds, h.Early, h.Rounds)
		}
	}
	r.writeEnd(t, "a late write was not sent")
}

// writeEnd writes what was not as it should be, and the verdict. missing says what makes a round invalid.
func (r Report) writeEnd(t io.Writer, missing string) {
	if r.ReplayedRounds > 0 {
		fmt.Fprintf(t, "rounds that were begun again, this machine being too slow\t%d\n", r.ReplayedRounds)
	}
	if len(r.InvalidRounds) > 0 {
		fmt.Fprintf(t, "invalid rounds (%s)\t%s\n", missing, strings.Trim(fmt.Sprint(r.InvalidRounds), "[]"))
	}
	for _, p := range r.Problems {
		fmt.Fprintf(t, "problem\t%s\n", p)
	}
	fmt.Fprintf(t, "verdict of the judging process\t%s\n", r.verdict())
}

func (r Report) verdict() string {
	seen := fmt.Sprintf("%d of %d late writes accepted", r.AcceptedStale, r.LateWritesSent)
	if r.Payments != nil {
		seen = fmt.Sprintf("damage in %d of %d rounds", r.Payments.DamagedRounds, r.Payments.Judged())
	}
	if r.Sales != nil {
		seen = fmt.Sprintf("damage in %d of %d rounds", r.Sales.DamagedRounds, r.Sales.Judged())
	}
	if r.Mail != nil {
		seen = fmt.Sprintf("damage in %d of %d rounds", r.Mail.DamagedRounds, r.Mail.Judged())
	}
	if r.Failover != nil {
		seen = fmt.Sprintf("%d of %d tokens repeated, %s", r.Failover.Repeated, r.Failover.Judged(), seen)
	}
	switch {
	case r.OK && r.Fenced:
		return "ok: " + seen
	case r.OK:
		return "ok, as unfenced: the damage is seen, " + seen
	}
	return "NOT ok: " + seen
}
