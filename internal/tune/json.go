package tune

import (
	"encoding/json"
	"fmt"
	"io"
	"time"
)

type partJSON struct {
	MeanMS float64 `json:"mean_ms"`
	P50MS  float64 `json:"p50_ms"`
	P99MS  float64 `json:"p99_ms"`
}

type recoveryJSON struct {
	Remaining partJSON `json:"remaining_ttl"`
	Waking    partJSON `json:"waking"`
	Retries   partJSON `json:"retries"`
	Start     partJSON `json:"start"`
	Total     partJSON `json:"total"`
}

type pointJSON struct {
	TTLMS             float64            `json:"ttl_ms"`
	MarginMS          float64            `json:"margin_ms"`
	IntervalMinMS     float64            `json:"renewal_interval_min_ms"`
	IntervalMaxMS     float64            `json:"renewal_interval_max_ms"`
	AttemptMS         float64            `json:"attempt_timeout_ms"`
	BudgetMS          float64            `json:"budget_ms"`
	ReserveMS         float64            `json:"reserve_ms"`
	LossPerHour       float64            `json:"loss_probability_hour"`
	LossPerDay        float64            `json:"loss_probability_day"`
	LossesByCause     map[string]float64 `json:"losses_per_day_by_cause"`
	ReclaimsPerDay    float64            `json:"reclaims_per_day"`
	RenewalsPerSecond float64            `json:"renewals_per_second"`
	Recovery          recoveryJSON       `json:"recovery"`
	BlockedMS         float64            `json:"blocked_per_day_ms"`
	CostPerDay        float64            `json:"cost_per_day"`
	Unfit             string             `json:"out_of_bounds,omitempty"`
}

type inputsJSON struct {
	Renewals       string  `json:"renewals"`
	Failures       float64 `json:"failures"`
	Pauses         string  `json:"pauses"`
	PauseEveryMS   float64 `json:"pause_every_ms"`
	Outages        string  `json:"outages"`
	OutageEveryMS  float64 `json:"outage_every_ms"`
	Hang           float64 `json:"hang"`
	Sessions       int     `json:"sessions"`
	CrashEveryMS   float64 `json:"crash_every_ms"`
	StartMS        float64 `json:"start_ms"`
	PollMS         float64 `json:"poll_ms"`
	CostPerSecond  float64 `json:"cost_per_second"`
	CostPerReclaim float64 `json:"cost_per_reclaim"`
	Target         float64 `json:"target"`
	MaxRenewals    float64 `json:"max_renewals,omitempty"`
}

// Extra is what a report carries beside the plan.
type Extra struct {
	Sampled *Sampled // what was sampled, or nil
	Checks  []Check  // of [Simulate], if it was asked for
	Remarks []string
}

// WriteJSON writes the plan as one JSON object. The histograms of a sample are in the form that [Read] takes.
func (p Plan) WriteJSON(w io.Writer, e Extra) error {
	out := struct {
		Met       bool                     `json:"within_bounds"`
		Best      pointJSON                `json:"recommended"`
		Points    []pointJSON              `json:"ttls"`
		Inputs    inputsJSON               `json:"inputs"`
		Sampled   map[string]histogramJSON `json:"sampled,omitempty"`
		Checks    []Check                  `json:"simulation,omitempty"`
		Remarks   []string                 `json:"remarks,omitempty"`
		Cancelled bool                     `json:"interrupted,omitempty"`
	}{Met: p.Met, Best: p.Points[p.Best].json(), Inputs: p.Inputs.json(), Checks: e.Checks, Remarks: e.Remarks}
	for _, q := range p.Points {
		out.Points = append(out.Points, q.json())
	}
	if s := e.Sampled; s != nil {
		out.Sampled = map[string]histogramJSON{"renewals": s.Renewals.json(), "pauses": s.Pauses.json()}
		out.Cancelled = s.Interrupted
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	if err := enc.Encode(out); err != nil {
		return fmt.Errorf("writing the output: %w", err)
	}
	return nil
}

func (q Point) json() pointJSON {
	part := func(p Part) partJSON { return partJSON{ms(p.Mean), ms(p.P50), ms(p.P99)} }
	r := q.Recovery
	return pointJSON{
		TTLMS: ms(q.TTL), MarginMS: ms(q.Margin), IntervalMinMS: ms(q.IntervalMin), IntervalMaxMS: ms(q.IntervalMost), AttemptMS: ms(q.Attempt),
		BudgetMS: ms(q.Budget), ReserveMS: ms(q.Reserve), LossPerHour: q.LossPerHour, LossPerDay: q.LossPerDay,
		LossesByCause:  map[string]float64{"outages": q.ByOutages, "pauses": q.ByPauses, "failing_renewals": q.ByFailures},
		ReclaimsPerDay: q.ReclaimsPerDay, RenewalsPerSecond: q.RenewalsPerSecond,
		Recovery:  recoveryJSON{part(r.Remaining), part(r.Waking), part(r.Retries), part(r.Start), part(r.Total)},
		BlockedMS: ms(q.BlockedPerDay), CostPerDay: q.CostPerDay, Unfit: q.Unfit,
	}
}

func (in Inputs) json() inputsJSON {
	return inputsJSON{
		Renewals: in.Renewals.String(), Failures: in.Failures, Pauses: in.Pauses.String(), PauseEveryMS: ms(in.PauseEvery),
		Outages: in.Outages.String(), OutageEveryMS: ms(in.OutageEvery), Hang: in.Hang, Sessions: in.Sessions, CrashEveryMS: ms(in.CrashEvery),
		StartMS: ms(in.Start), PollMS: ms(in.Poll), CostPerSecond: in.CostPerSecond, CostPerReclaim: in.CostPerReclaim,
		Target: in.Target, MaxRenewals: in.MaxRenewals,
	}
}

// ms is d in milliseconds, to the microsecond.
func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
