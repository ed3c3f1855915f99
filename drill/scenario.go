package drill

import (
	"context"
	"slices"
	"time"

	"github.com/tenure-go/tenure/drill/model"
	"github.com/tenure-go/tenure/internal/flakypay"
)

// Scenario is one drill: what is done to a holder, what that shows, and what it is without enforcement.
type Scenario struct {
	Name     string
	Summary  string // one line
	Shows    string // what must hold, and why it matters
	Unfenced string // what is left out with enforcement off, and the damage that then must be seen
	Rounds   int    // unless told otherwise

	// OwnServers: it builds PostgreSQL servers of its own and takes no store.
	OwnServers bool
	// PostgresOnly: it takes a PostgreSQL store, and without any it starts a server of its own.
	PostgresOnly bool
	// Objects: its resource is objects in an S3-like store, which it is told of beside the store of leases.
	Objects bool
	// Files: its resource is files in a folder, which it may be told of.
	Files bool
	// Service: its resource is an HTTP service of its own, behind a guard or not.
	Service bool
	// Tables: its resource is a table that refuses writes without a claim, beside the store.
	Tables bool
	// Payments: its resource is the ledger of a payment provider of the drill's own, and the store keeps operations.
	Payments bool
	// Sales: its resource is a table of sales beside the store, which keeps holds.
	Sales bool
	// Mail: its resource is the tables of a consumer of messages, beside the store, which keeps them.
	Mail bool

	ttl, margin time.Duration
	atOnce      int // rounds that are played at the same time
	demand      model.Demand
	needsStop   bool  // this system must be able to stop a process
	guarded     guard // what the resource checks; empty: strictly
	unguarded   guard
	arm         func(ctx context.Context, c *conductor) error // makes what else is needed, once the tables are there
	play        func(ctx context.Context, r *round) error
	whole       func(ctx context.Context, o Options, sc Scenario) (Report, error) // plays all of it, instead of play
}

// MaxRounds is the largest number of rounds of any drill.
const MaxRounds = 1000

// MaxRounds is the largest number of rounds of this drill.
func (s Scenario) MaxRounds() int {
	if s.Payments { // in each of two variants a request waits at a gate of its own, of which the provider has so many; some rounds are begun again
		return flakypay.MaxGates * 2 / 5
	}
	return MaxRounds
}

const noCheck = "The resource takes every write without looking at its claim. The late write replaces what the successor wrote, and nobody is told."

// Scenarios returns all drills, in the order in which they are best read.
func Scenarios() []Scenario {
	const (
		ttl    = time.Second
		margin = 200 * time.Millisecond
		atOnce = 10
	)
	plain := model.Demand{Late: 1}
	noticed := model.Demand{Late: 1, Noticed: true}
	return slices.Concat([]Scenario{
		{Name: "story", Rounds: 1, atOnce: 10, unguarded: guardNone,
			Summary:  "three owners, four grants, one line a step",
			Shows:    "The serial model of a lease, played step by step on a real store and a real resource: expiry at equality, a late write, a release and a renewal that come too late, tokens that rise. In memory the clock is exact; elsewhere a story second is a fraction of a second of the authority's clock.",
			Unfenced: "The resource takes every write: the three that the story refuses are accepted."},
		{Name: "pause", Rounds: 10, ttl: ttl, margin: margin, atOnce: atOnce, demand: plain, needsStop: true, unguarded: guardNone, play: playPause,
			Summary:  "a holder is stopped between its last check and its write",
			Shows:    "The holder asks its lease once more, is told that it holds, and is stopped by SIGSTOP before its write. Its TTL passes, a successor is granted and writes, the holder goes on and sends its write without asking again. No time-out prevents that; the resource refuses it. With --through-api the late write goes through the library: with the lease's context it is not even sent, with another context the resource refuses it.",
			Unfenced: noCheck},
		{Name: "lost-renewal", Rounds: 10, ttl: 1500 * time.Millisecond, margin: 500 * time.Millisecond, atOnce: atOnce, demand: noticed, unguarded: guardNone, play: playLostRenewal,
			Summary:  "renewals are applied, and their replies are lost",
			Shows:    "Two lost replies cost nothing: the next renewal is acknowledged and the lease survives. When every reply is lost the holder stops believing before its successor can be granted, and work that does not look at its context is refused at the resource.",
			Unfenced: noCheck},
		{Name: "silent-renewal", Rounds: 10, ttl: 1500 * time.Millisecond, margin: 500 * time.Millisecond, atOnce: atOnce, demand: noticed, unguarded: guardNone, play: playSilentRenewal,
			Summary:  "the renewal hangs, in every second round it panics",
			Shows:    "The context of the lease ends by the safe deadline whatever becomes of the call that renews: a call that heeds nothing, or one that panics. Work that does not look is refused at the resource.",
			Unfenced: noCheck},
		{Name: "short-ttl", Rounds: 5, ttl: 600 * time.Millisecond, margin: 100 * time.Millisecond, atOnce: 5, demand: model.Demand{Late: 2}, needsStop: true, unguarded: guardNone, play: playShortTTL,
			Summary:  "the TTL is shorter than the pauses of the workers",
			Shows:    "Two holders in a row are stopped for longer than their TTL, and each is reclaimed from. It costs work, not data: their late writes are refused, they acquire again, and in the end every acknowledged update is there.",
			Unfenced: "The resource takes every write without looking at its claim: the same reclaims now lose acknowledged updates."},
		{Name: "missing-release", Rounds: 10, ttl: ttl, margin: margin, atOnce: atOnce, demand: plain, unguarded: guardNone, play: playMissingRelease,
			Summary:  "the holder never releases: it has gone, or it keeps renewing",
			Shows:    "In odd rounds the holder's process ends without releasing: the name is free after what is left of its TTL, and not before. In even rounds it lives and renews for ever: MaxHold frees the name. What it had handed to another process, or still sends itself, is refused.",
			Unfenced: noCheck},
		{Name: "delayed-release", Rounds: 10, ttl: ttl, margin: margin, atOnce: atOnce, demand: plain, unguarded: guardNone, play: playDelayedRelease,
			Summary:  "the release arrives when a successor holds",
			Shows:    "A release frees the acquisition that it names and no other: one that arrives late leaves the successor its lease, a third owner is refused, and the successor's next write is accepted.",
			Unfenced: noCheck},
		{Name: "duplicate-release", Rounds: 10, ttl: ttl, margin: margin, atOnce: atOnce, demand: plain, unguarded: guardNone, play: playDuplicateRelease,
			Summary:  "the release arrives twice, the second time when a successor holds",
			Shows:    "Releasing again is success and changes nothing: the successor keeps its lease, a third owner is refused, and the successor's next write is accepted.",
			Unfenced: noCheck},
		{Name: "reused-owner", Rounds: 10, ttl: ttl, margin: margin, atOnce: atOnce, demand: plain, unguarded: guardOwner, play: playReusedOwner,
			Summary:  "the successor has the same owner label as the former holder",
			Shows:    "A label is for people. A holder that was cut off while a replacement of the same name took over is refused, and its late release frees nothing: only acquisition and token count.",
			Unfenced: "The resource takes the owner label for proof: it accepts whoever has the name of the current holder, so the former one too."},
		{Name: "cancel-is-not-release", Rounds: 10, ttl: ttl, margin: margin, atOnce: atOnce, demand: plain, unguarded: guardNone, play: playCancel,
			Summary:  "the work's context is cancelled, and the work goes on for a while",
			Shows:    "Cancelling is a wish. The lease is released after the work has returned, so a write that it still makes is rightful and nobody is granted meanwhile. What it left running after that is refused.",
			Unfenced: noCheck},
		{Name: "kill", Rounds: 20, ttl: 2 * time.Second, margin: 500 * time.Millisecond, atOnce: atOnce, unguarded: guardNone, play: playKill,
			demand:   model.Demand{Late: 1, Handover: 100 * time.Millisecond},
			Summary:  "the holder is killed; how long until its successor is granted?",
			Shows:    "SIGKILL at a moment of chance. A waiting successor is granted within 100 ms of the expiry that the last acknowledged renewal set, in 99 of 100 rounds, and never before it. A process to which the killed one had handed its claim is refused.",
			Unfenced: noCheck},
		{Name: "pause-in-transaction", Rounds: 3, PostgresOnly: true, needsStop: true, whole: insideTransactions,
			Summary:  "a holder is stopped, or busy, inside its fenced transaction",
			Shows:    "The holder verifies its claim and is stopped before it commits: its successor waits, the server ends the idle transaction at about the end of the lease, the successor is granted, and the COMMIT that the holder sends afterwards fails: its write is not there. A holder that is busy keeps its successor out for as long as it works, past the end of its lease, and its write is rightful; in the store's own fenced transaction (Fenced) it is ended when the lease ends. Printed is how long the successors waited, against the bounds. Without --store it starts a PostgreSQL server of its own.",
			Unfenced: "The holder asks in a plain read, inside its transaction, whether it holds, instead of verifying. Nothing keeps its successor out, its COMMIT succeeds, and what the successor wrote is lost."},
		{Name: "failover", Rounds: 1, OwnServers: true, unguarded: guardMark, whole: failover,
			Summary:  "a primary dies with unshipped commits, and every branch of its history grants",
			Shows:    "On PostgreSQL servers of its own: the link to the standbys is cut, the primary goes on granting and renewing and is killed; a standby is promoted and grants the same names; a second standby of the same parent is promoted, a plain copy of the dead primary is started, the old primary is brought back. No token comes twice for a name over all branches, and the late writes of the lost branch's holders are refused by the mark of a resource apart. Printed is what does not survive: how many successors were granted while the former holder still believed to hold. Then the stated residue, a new branch whose clock is an hour behind: tokens repeat there, a claim from the lost branch is refused as ahead and stops its name, and `epoch raise --above` repairs both.",
			Unfenced: "Entering a new incarnation is replaced by a function that does not jump. Tokens then repeat, and the drill is ok if it has seen that."},
	}, fenceScenarios(), payScenarios(), holdScenarios(), mailScenarios())
}

// fenceScenarios are pause, with other resources than tables that the drill makes: what differs is who refuses the late write.
func fenceScenarios() []Scenario {
	const (
		ttl    = time.Second
		margin = 200 * time.Millisecond
		atOnce = 10
	)
	plain := model.Demand{Late: 1}
	return []Scenario{
		{Name: "fence-object", Rounds: 10, Objects: true, ttl: ttl, margin: margin, atOnce: atOnce, demand: plain, needsStop: true, unguarded: guardNone, play: playPause, whole: fenceObject,
			Summary:  "a holder is stopped between its look at an object and its PUT",
			Shows:    "The resource is an object in the S3-like store that --s3 names, written through the library (fence/object). The holder has looked at the object, found its own mark there, and is stopped by SIGSTOP when its conditional PUT is about to be sent. A successor is granted, enters, reads and writes; the holder goes on and sends the PUT without asking again. The store refuses it, because the object is not the one that it looked at, and a second look shows the newer mark. Before anything else the drill makes sure that the store keeps the conditions of a PUT.",
			Unfenced: "Both write by plain PUTs, as any client of S3 does. The late PUT replaces what the successor wrote, and nobody is told."},
		{Name: "fence-file", Rounds: 10, Files: true, ttl: ttl, margin: margin, atOnce: atOnce, demand: plain, needsStop: true, unguarded: guardNone, play: playPause, whole: fenceFile,
			Summary:  "a holder is stopped between its last check and its write of a file",
			Shows:    "The resource is a file in the folder that --folder names, guarded by the library (fence/file): a side file has the lock and the mark. The holder enters and reads the file, asks its lease once more, is told that it holds, and is stopped by SIGSTOP before its write. A successor is granted, enters, reads and writes; the holder goes on and sends its write without asking again. The mark refuses it. Before anything else the drill makes sure that the file system has locks that can be relied on.",
			Unfenced: "Both write the file beside its place and rename it there, as careful programs do. The late one replaces what the successor wrote, and nobody is told."},
		{Name: "fence-table", Rounds: 3, Tables: true, needsStop: true, whole: fenceTable,
			Summary:  "a holder is stopped before its write to a protected table",
			Shows:    "The resource is a table that is protected (tenure protect), and everybody writes it by plain statements without any condition, in a transaction that presents the claim. The holder asks its lease once more, is told that it holds, and is stopped by SIGSTOP before its transaction. A successor is granted and writes; the holder goes on and sends its transaction without asking again. In one variant it presents its claim, and that is refused; in another it presents nothing, in a third, on PostgreSQL, it sets by hand what presenting would set: then the table itself refuses the row.",
			Unfenced: "The same table without protection, and nobody presents anything. The late UPDATE replaces what the successor wrote, and nobody is told."},
		{Name: "fence-table-foreign", Rounds: 3, Tables: true, whole: fenceTableForeign,
			Summary:  "code that has never heard of leases writes to a protected table",
			Shows:    "The holder of a lease works on its row of a protected table. A process that opens no store and knows the driver alone sends a plain UPDATE, an INSERT ... ON CONFLICT, a COPY and a DELETE to that row, each in a transaction of its own: once as the table's owner, once as another role, which is made for the run, may write the table, and is dropped afterwards. The table refuses each, with SQLSTATE TN013, the row is the holder's, and the holder goes on working. In a SQLite file there are no roles: any program that opens the file is refused. Where the drill's role may not create roles, that variant is omitted by its name, and the drill is not ok.",
			Unfenced: "The same table without protection. Each of the statements is accepted, and what the holder wrote is lost."},
		{Name: "fence-http", Rounds: 3, Service: true, ttl: 3 * time.Second, margin: time.Second, atOnce: 3, demand: plain, needsStop: true, whole: fenceHTTP,
			Summary:  "a service is stopped in the middle of the old owner's request",
			Shows:    "The resource is an HTTP service of two processes on one port that knows nothing of leases, behind a guard (tenure guard), all of them processes of their own. The holder's request was checked and passed on, and the process that has it is stopped by SIGSTOP before it writes; the holder does not reach the authority any more, its lease runs out, and a successor is granted. It reads, under its claim: the guard lets it in when the service has answered the older request, and not before, though the holder was told long ago that this took too long. So it reads what the old request wrote, and its own write stands. A request that the holder sends after that is refused. Played with a guard that asks the store, and with one that keeps marks.",
			Unfenced: "Two ways to lose the successor's write: without a guard, and with one that checks each request and does not give turns. The successor is let in at once and writes, the process goes on, and what is left of the old request replaces what was written."},
	}
}

// find returns the scenario of that name.
func find(name string) (Scenario, bool) {
	for _, s := range Scenarios() {
		if s.Name == name {
			return s, true
		}
	}
	return Scenario{}, false
}
