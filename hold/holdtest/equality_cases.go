package holdtest

import (
	"time"

	"github.com/tenure-go/tenure/hold"
)

// EqualityCases is what happens at the very instant that matters: now >= expiry is expired. They need a store whose clock stands still.
func EqualityCases() []Case[ManualHarness] {
	return []Case[ManualHarness]{
		named("a-hold-expires-at-equality-and-not-before", expiryAtEquality),
		named("at-equality-a-confirmation-is-late", confirmAtEquality),
		named("at-equality-a-hold-is-not-extended-nor-released", changeAtEquality),
		named("at-equality-what-is-held-is-free", freeAtEquality),
		named("grace-ends-at-equality", graceAtEquality),
		named("what-is-old-enough-is-forgotten-at-equality", pruneAtEquality),
		named("durations-are-exact", durationsExact),
	}
}

// grain is the finest difference in time that every store keeps.
const grain = time.Microsecond

func expiryAtEquality(s *stage, h ManualHarness) {
	s.stock(1, "a")
	s.place("x", ann, "a")
	h.Tick(ttl - grain)
	held := s.at("x", hold.Held, "")
	s.want(held.Left == grain, "just before, %v are left; want %v", held.Left, grain)
	s.item("a", 1, 0, 1)
	h.Tick(grain)
	over := s.at("x", hold.Expired, "")
	s.want(over.Left == 0 && over.Ended == 0, "at its expiry: %+v", over)
	s.item("a", 1, 0, 0)
	s.list(hold.ListRequest{States: []hold.State{hold.Expired}}, "x")
	s.list(hold.ListRequest{States: []hold.State{hold.Held}})
	s.over(s.refusal(request("x", ann, "a"), hold.ErrOver), idOf("x"), hold.Expired, "placing it again")
}

func confirmAtEquality(s *stage, h ManualHarness) {
	s.stock(1, "a", "b")
	s.place("x", ann, "a")
	s.place("y", ann, "b")
	h.Tick(ttl - grain)
	s.sell("x", ann)
	h.Tick(grain)
	s.confirm(paid("y", ann, "r"), hold.Late)
	s.item("a", 1, 1, 0)
	s.item("b", 1, 0, 0)
}

func changeAtEquality(s *stage, h ManualHarness) {
	s.stock(9, "a")
	s.place("x", ann, "a")
	s.place("y", ann, "a")
	s.place("z", ann, "a")
	h.Tick(ttl - grain)
	s.extend("z", ann, ttl, ttl)
	h.Tick(grain)
	_, err := s.store.Extend(s.ctx, idOf("x"), ann, ttl)
	s.over(err, idOf("x"), hold.Expired, "extending at its expiry")
	s.release("y", ann, hold.Expired)
	h.Tick(ttl - 2*grain)
	s.at("z", hold.Held, "")
	h.Tick(grain)
	s.at("z", hold.Expired, "")
}

func freeAtEquality(s *stage, h ManualHarness) {
	s.stock(1, "a", "b", "c")
	req := request("x", ann, "a", "b", "c")
	req.MaxHolds = 1
	s.placed(req)
	h.Tick(ttl - grain)
	next := s.taken(request("y", bob, "a"), "a", 1, 0)
	s.want(next == grain, "just before, the next expires within %v; want %v", next, grain)
	s.stockRefused("b", 1, 0, hold.Item{Name: "b"})
	req = request("y", ann, "a")
	req.MaxHolds = 1
	s.limited(req, "holds", 1, 1)
	h.Tick(grain)
	s.placed(req)
	s.stock(0, "b")
	s.place("z", bob, "c")
}

func graceAtEquality(s *stage, h ManualHarness) {
	s.stock(1, "a", "b", "c")
	s.place("x", ann, "a")
	s.place("y", ann, "b")
	s.place("z", ann, "c")
	h.Tick(ttl)
	s.confirm(graced("z", ann, "r", grain), hold.Confirmed)
	h.Tick(time.Second - grain)
	s.confirm(graced("x", ann, "r", time.Second), hold.Confirmed)
	h.Tick(grain)
	s.confirm(graced("y", ann, "r", time.Second), hold.Late)
}

func pruneAtEquality(s *stage, h ManualHarness) {
	s.stock(9, "a")
	s.place("expired", ann, "a")
	s.place("released", ann, "a")
	s.release("released", ann, hold.Released)
	h.Tick(time.Hour - grain)
	s.prune(time.Hour, 10, 0)
	h.Tick(grain)
	s.prune(time.Hour, 10, 1)
	s.list(hold.ListRequest{}, "expired")
	h.Tick(ttl - grain)
	s.prune(time.Hour, 10, 0)
	h.Tick(grain)
	s.prune(time.Hour, 10, 1)
}

func durationsExact(s *stage, h ManualHarness) {
	s.stock(9, "a")
	held := s.place("x", ann, "a")
	s.want(held.Left == ttl && held.TTL == ttl && held.Age == 0 && held.Ended == 0, "placed: %+v", held)
	h.Tick(3 * time.Second)
	s.place("y", ann, "a")
	held = s.at("x", hold.Held, "")
	s.want(held.Left == ttl-3*time.Second && held.Age == 3*time.Second && held.TTL == ttl, "after 3 s: %+v", held)
	s.extend("x", ann, time.Minute, time.Minute)
	h.Tick(time.Second)
	held = s.at("x", hold.Held, "")
	s.want(held.Left == time.Minute-time.Second && held.TTL == ttl, "extended: %+v", held)
	s.sell("x", ann)
	h.Tick(ttl)
	sold := s.at("x", hold.Confirmed, "pays x")
	s.want(sold.Left == 0 && sold.Ended == ttl && sold.Age == ttl+4*time.Second, "sold: %+v", sold)
	over := s.at("y", hold.Expired, "")
	s.want(over.Ended == time.Second && over.Age == ttl+time.Second, "expired: %+v", over)
	s.confirm(paid("y", ann, "r"), hold.Late)
	h.Tick(time.Second)
	late := s.at("y", hold.Late, "r")
	s.want(late.Ended == time.Second && late.Age == ttl+2*time.Second, "late: %+v", late)
}
