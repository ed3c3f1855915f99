package ophistories

import (
	"fmt"
	"slices"
	"time"

	"github.com/tenure-go/tenure/operation"
	"github.com/tenure-go/tenure/operation/operationtest"
)

// What workers know of kinds.
const (
	window  = 20 * time.Second
	instant = 30 * time.Second
)

func timeouts() []time.Duration { return []time.Duration{8 * time.Second, time.Minute} }

// ages are those of what is forgotten: bodies, records, all.
func ages() []time.Duration {
	return []time.Duration{time.Minute, 12 * time.Hour, operation.MinForget}
}

func kindNames() []string { return []string{"a", "b"} }

func (d *draft) kind() string { return pick(d.t, "kind", kindNames()) }

func request(id, kind string) operation.SubmitRequest {
	body := []byte("request of " + id)
	return operation.SubmitRequest{ID: id, Kind: kind, Request: body, Fingerprint: operation.FingerprintOf(kind, body)}
}

func (d *draft) submitted(req operation.SubmitRequest) {
	r := d.play(operationtest.Op{Submit: &req})
	if r.Err == nil && !r.Known {
		d.ids = append(d.ids, req.ID)
		d.requests[req.ID] = req
	}
}

func (d *draft) submit() {
	if len(d.ids) >= maxIDs {
		d.submitAgain()
		return
	}
	d.texts++
	req := request(fmt.Sprintf("o%d", d.texts%40), d.kind())
	req.Priority = number(d.t, "priority", 0, operation.MaxPriority)
	req.Order = pick(d.t, "order", []string{"", "", "k", "l"})
	req.RunIn = d.delay()
	d.submitted(req)
}

// submitAgain repeats a submission, also under an id that was forgotten, or uses the id for something else.
func (d *draft) submitAgain() {
	if len(d.requests) == 0 {
		return
	}
	var known []string
	for id := range d.requests {
		known = append(known, id)
	}
	slices.Sort(known)
	req := d.requests[pick(d.t, "id", known)]
	switch number(d.t, "particulars", 0, 4) {
	case 0:
		req.Request = []byte("another")
		req.Fingerprint = operation.FingerprintOf(req.Kind, req.Request)
	case 1:
		req.Kind += "x"
	}
	req.RunIn = d.delay()
	d.submitted(req)
}

func (d *draft) compensate() {
	id := d.idIn(operation.Succeeded)
	req := request("undoes "+id, d.kind())
	req.Compensates = id
	d.submitted(req)
}

func (d *draft) get() { d.play(operationtest.Op{Get: d.id()}) }

func (d *draft) cancel() {
	d.play(operationtest.Op{Cancel: d.idIn(operation.Pending, operation.Attempting, operation.Uncertain)})
}

func (d *draft) answer() operation.Answer {
	a := operation.Answer{Known: pick(d.t, "known", []operation.Known{operation.Effective, operation.Effective, operation.Refused, operation.NotSent, operation.NoAnswer, operation.NoAnswer})}
	switch a.Known {
	case operation.Effective:
		a.Result = d.text("result")
	case operation.Refused:
		a.Final = d.chance(2)
		a.Reason = "refused"
	default:
		a.Reason = string(d.text("reason"))
	}
	return a
}

func (d *draft) respond() {
	rep := operationtest.Report{Try: d.try(d.idIn(operation.Attempting, operation.Uncertain, operation.Succeeded, operation.Failed)), Answer: d.answer()}
	if d.chance(4) {
		rep.N = 0
	}
	d.play(operationtest.Op{Respond: &rep})
}

func (d *draft) claim() {
	req := operation.ClaimRequest{Worker: pick(d.t, "worker", []string{"v", "w"}), TTL: d.free(pick(d.t, "ttl", []time.Duration{5 * time.Second, 10 * time.Second})), Limit: d.limit(100)}
	for _, kind := range kindNames() {
		if d.chance(4) {
			continue
		}
		req.Kinds = append(req.Kinds, operation.KindClaim{
			Kind: kind, Limit: d.limit(100), Timeout: pick(d.t, "timeout", timeouts()), Window: pick(d.t, "window", []time.Duration{0, window, operation.Forever, operation.Forever}),
			NotAfter: pick(d.t, "not after", []time.Duration{0, 0, instant}), MaxAttempts: pick(d.t, "attempts", []int{1, 3, 10, 10, 10}),
			Asks: !d.chance(3), Undoes: !d.chance(3),
		})
	}
	if len(req.Kinds) == 0 {
		req.Kinds = []operation.KindClaim{{Kind: "unheard of", Limit: 1, Timeout: time.Second, MaxAttempts: 1}}
	}
	if d.chance(8) {
		req.ID = d.id()
	}
	d.play(operationtest.Op{Claim: &req})
}

func (d *draft) renew() {
	req := operationtest.Renewal{TTL: d.free(7 * time.Second)}
	for range number(d.t, "claims", 1, 3) {
		if t := d.try(d.idIn(operation.Attempting)); !slices.Contains(req.Tries, t) {
			req.Tries = append(req.Tries, t)
		}
	}
	d.play(operationtest.Op{Renew: &req})
	for _, t := range req.Tries {
		d.tied[t.ID] = d.tied[t.ID] || len(req.Tries) > 1
	}
}

func (d *draft) report() operationtest.Report {
	return operationtest.Report{Try: d.try(d.idIn(operation.Attempting)), Answer: d.answer(), RetryIn: d.delay()}
}

func (d *draft) complete() {
	rep := d.report()
	d.play(operationtest.Op{Complete: []operationtest.Report{rep}})
}

// completeMany reports for strangers, some of them twice.
func (d *draft) completeMany() {
	var all []operationtest.Report
	for range number(d.t, "completions", 2, 4) {
		rep := d.report()
		if d.chance(10) {
			rep.Known = operation.Open // none
		}
		all = append(all, rep)
	}
	before := d.records
	d.play(operationtest.Op{Complete: all})
	d.together(before)
}

// together marks what one call has moved: it is due since the same instant.
func (d *draft) together(before map[string]operation.Record) {
	var moved []string
	for id, rec := range d.records {
		if rec.State != before[id].State {
			moved = append(moved, id)
		}
	}
	for _, id := range moved {
		d.tied[id] = d.tied[id] || len(moved) > 1
	}
}

func (d *draft) expire() {
	limit := d.limit(100)
	before := d.records
	d.play(operationtest.Op{Expire: limit})
	d.together(before)
}

func (d *draft) due() {
	req := operation.DueRequest{Kinds: kindNames(), Limit: d.limit(100), Hold: d.free(pick(d.t, "hold", []time.Duration{time.Second, 10 * time.Second}))}
	if d.chance(4) {
		req.Kinds = []string{d.kind()}
	}
	r := d.play(operationtest.Op{Due: &req})
	for _, rec := range r.Records {
		d.tied[rec.ID] = d.tied[rec.ID] || len(r.Records) > 1
	}
}

func (d *draft) inquired() {
	inq := operation.Inquiry{
		ID: d.idIn(operation.Uncertain), Finding: pick(d.t, "finding", []operation.Finding{operation.Found, operation.Closed, operation.PastInstant, operation.NotObserved, operation.NotObserved}),
		Reason: "asked", AskIn: d.delay(),
	}
	if inq.Finding == operation.Found {
		inq.Result = d.text("result")
	}
	d.play(operationtest.Op{Inquired: &inq})
}

func (d *draft) undone() {
	id := d.idIn(operation.Succeeded)
	u := operationtest.Undoing{ID: id, By: "undoes " + id}
	if d.chance(3) {
		u.By = d.id()
	}
	d.play(operationtest.Op{Undone: &u})
}

func (d *draft) list() {
	req := operation.ListRequest{Limit: pick(d.t, "limit", []int{2, operation.MaxList}), Conflicts: d.chance(3), Wished: d.chance(4), Bodies: d.chance(3)}
	req.Kind = pick(d.t, "kind", []string{"", "", "a"})
	req.Prefix = pick(d.t, "prefix", []string{"", "o", "undoes"})
	req.After = pick(d.t, "after", []string{"", "o1", "o3"})
	if d.chance(3) {
		req.States = []operation.State{operation.State(number(d.t, "state", 1, 6)), operation.Uncertain}
	}
	d.play(operationtest.Op{List: &req})
}

func (d *draft) resolve() {
	v := operation.Verdict{ID: d.idIn(operation.Uncertain), State: pick(d.t, "verdict", []operation.State{operation.Succeeded, operation.Failed}), Reason: "seen"}
	if v.State == operation.Succeeded {
		v.Result = d.text("result")
	}
	d.play(operationtest.Op{Resolve: &v})
}

// prune forgets what is old enough: a night may pass before.
func (d *draft) prune() {
	if d.chance(3) {
		d.to(d.now + pick(d.t, "night", ages()))
	}
	req := operation.PruneRequest{Bodies: ages()[0], Records: ages()[1], Forget: ages()[2], Limit: operation.MaxPrune}
	switch number(d.t, "stages", 0, 3) {
	case 0:
		req.Bodies = 0
	case 1:
		req.Records, req.Forget = 0, 0
	case 2:
		req.Forget = 0
	}
	d.play(operationtest.Op{Prune: &req})
}

func (d *draft) stats() { d.play(operationtest.Op{Stats: true}) }

// advance lets time pass: a little, much, or to an instant that matters.
func (d *draft) advance() {
	var to []time.Duration
	for _, at := range d.instants {
		for _, t := range []time.Duration{at - d.beside, at, at + d.beside} {
			if t > d.now && at < d.now+time.Hour {
				to = append(to, t)
			}
		}
	}
	target := d.now + pick(d.t, "by", []time.Duration{time.Millisecond, 2 * time.Second, 9 * time.Second, 30 * time.Second})
	if len(to) > 0 && d.chance(2) {
		target = pick(d.t, "to", to)
	}
	d.to(target)
}

// to lets time pass until then, or a little longer where it must stay away from what matters.
func (d *draft) to(target time.Duration) {
	by := target - d.now
	if d.o.Away > 0 {
		by = d.free(by)
	}
	if by > 0 {
		d.play(operationtest.Op{Advance: by})
	}
}
