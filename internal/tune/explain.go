package tune

import (
	"fmt"
	"io"
	"time"
)

const explanation = `
How this is computed

The client (lease.Session) renews every 0.3 to 0.333 of the TTL, waits a third of the TTL for an answer, and after a failure asks
again after a back-off from 1/60 to 1/6 of the TTL, shorter towards the end. It believes for TTL - margin after SENDING the last
renewal that was acknowledged: that is the window. A live lease is lost when no renewal sent within the window is acknowledged within it.

Probability of a loss: three causes, added up.
  failing renewals  Each attempt fails at once with the probability given, or comes later than its bound by the distribution of round trips,
                    independently of the others. A table holds, for each moment of the window and each step of the back-off, the
                    probability that this attempt and all that can follow it fail; the first one is due after an interval.
  outages           Come at a constant rate (Poisson), at any moment of the interval, and last as their distribution says. While one lasts every
                    attempt fails: where the store hangs at its bound, elsewhere at once. The lease is lost if the outage outlasts the last
                    attempt that the window has room for, or those after the outage fail on their own account.
  pauses            The same for the process: nothing is sent while it stands still, and the clock goes on. The lease is lost if
                    the pause ends beyond the window, or those attempts that remain fail.

Recovery after a crash, in parts. The crash comes at any moment between two renewals.
  remaining TTL     The TTL less the age of the last renewal: 2/3 of it at least. The authority cannot tell a crash from a silence.
  waking            1 to 10 ms after the expiry for a waiter in lease.Session, which was told when that is; up to --poll for others.
  retries           The trips of the waiter's last two questions, and questions that fail and are asked again.
  start             As given.

Cost a day = sessions x (blocked seconds x cost per second + losses x cost per reclaim). Blocked are recoveries, and after a loss the
margin, waking, retries and start, or the rest of the outage. The TTL is the cheapest among round ones that keeps to the target and to
the bound on renewals. The margin is the client's default (a tenth of the TTL, at least 500 ms), or 1 % of the TTL for clocks whose rates
differ plus the 99.9th percentile of pauses, if that is more: of 1,000 pauses between a look at the claim and the write, 999 are then over
before anybody else can hold the lease. The others only the resource can refuse. A waiter's budget is 1.1 times the 99th percentile of
recovery plus a reserve to ask twice what became of a request.

Assumed, and worth doubting
  - Beyond the largest measurement a histogram goes on as a Pareto tail, with the weight of half a measurement at least. A short sample
    therefore shows losses that a longer one would rule out. --tail is its index: smaller is heavier.
  - Outages and pauses do not overlap, pauses do not come in bursts, and neither depends on the load. Outages hit all sessions at once:
    the reclaims of many sessions come together, and "a day" is a mean over many days.
  - Clock rates differ by at most 1 %. A machine that is suspended or a guest that is paused counts as a pause only where its clock goes on.
  - An outage is over for all at the same time, and the store answers at its usual speed right after it.
  - A crash leaves nothing behind: a holder that stops orderly releases, and its successor waits only to wake.
  - The simulation (--simulate) plays the same rules with the same distributions, so it checks the sums and not the inputs.
`

// WriteExplanation writes the model, its assumptions and the inputs.
func (in Inputs) WriteExplanation(w io.Writer) error {
	every := func(d time.Duration) string {
		if d == 0 {
			return "never"
		}
		return "one every " + often(d)
	}
	poll := "in lease.Session"
	if in.Poll > 0 {
		poll = "asks every " + plain(in.Poll)
	}
	_, err := fmt.Fprintf(w, `%s
Inputs
  round trip of a renewal  %v
  failing at once          %s of renewals
  pauses of the process    %s; %v
  outages of the store     %s; %v; in %s of them it hangs
  sessions                 %d
  crashes of a holder      %s each
  waiter                   %s
  start of the work        %v
  costs                    %s a blocked second, %s a false reclaim
`, explanation, in.Renewals, probability(in.Failures), every(in.PauseEvery), in.Pauses, every(in.OutageEvery), in.Outages, share(in.Hang),
		in.Sessions, every(in.CrashEvery), poll, in.Start, figure(in.CostPerSecond), figure(in.CostPerReclaim))
	if err != nil {
		return fmt.Errorf("writing the output: %w", err)
	}
	return nil
}
