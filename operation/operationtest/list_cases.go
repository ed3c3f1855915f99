package operationtest

import (
	"fmt"
	"slices"
	"time"

	"github.com/tenure-go/tenure/operation"
)

func listCases() []Case[Harness] {
	return []Case[Harness]{
		plain("a-list-holds-what-matches-all-that-is-set", listFilters),
		plain("a-list-goes-on-after-an-id", listPages),
		plain("a-list-holds-bodies-only-when-asked", listBodies),
		plain("a-prefix-is-taken-byte-by-byte", listPrefix),
		plain("statistics-count-what-is-undecided-and-what-needs-an-operator", statistics),
	}
}

// list must hold exactly these.
func (s *stage) list(req operation.ListRequest, ids ...string) []operation.Record {
	if s.failed() {
		return nil
	}
	if req.Limit == 0 {
		req.Limit = operation.MaxList
	}
	all, err := s.store.List(s.ctx, req)
	if err != nil {
		s.fail("listing %+v: %w", req, err)
	}
	got := idsOf(all, func(r operation.Record) string { return r.ID })
	s.want(slices.Equal(got, ids), "listing %+v: %q; want %q", req, got, ids)
	return all
}

func listFilters(s *stage) {
	s.list(operation.ListRequest{})
	s.states() // "attempting", "cancelled", "failed", "pending", "succeeded", "uncertain"
	s.submitted(requestOf(other, "r"))
	all := []string{"attempting", "cancelled", "failed", "pending", "r", "succeeded", "uncertain"}
	s.list(operation.ListRequest{}, all...)
	for _, state := range all {
		for st := operation.Pending; st <= operation.Cancelled; st++ {
			if st.String() == state {
				s.list(operation.ListRequest{Kind: kind, States: []operation.State{st}}, state)
			}
		}
	}
	s.list(operation.ListRequest{States: []operation.State{operation.Uncertain, operation.Pending}}, "pending", "r", "uncertain")
	s.list(operation.ListRequest{Kind: other}, "r")
	s.list(operation.ListRequest{Kind: "none"})
	s.list(operation.ListRequest{Conflicts: true})
	s.list(operation.ListRequest{Wished: true})
	s.conflict("failed", 0, effective("after all"), 1)
	s.conflict("cancelled", 0, effective("after all"), 1)
	s.list(operation.ListRequest{Conflicts: true}, "cancelled", "failed")
	s.list(operation.ListRequest{Conflicts: true, States: []operation.State{operation.Failed, operation.Pending}, Prefix: "f"}, "failed")
	s.cancel("attempting")
	s.cancel("uncertain")
	s.list(operation.ListRequest{Wished: true}, "attempting", "uncertain")
	s.list(operation.ListRequest{Wished: true, Conflicts: true})
	s.found("attempting", operation.Found, 0)
	s.list(operation.ListRequest{Wished: true}, "attempting", "uncertain") // to be undone
	s.found("uncertain", operation.Closed, 0)
	s.list(operation.ListRequest{Wished: true}, "attempting")
	s.submitted(compensation("undo", "attempting"))
	_, err := s.store.Undone(s.ctx, "attempting", "undo")
	s.want(err == nil, "undone: %v", err)
	s.list(operation.ListRequest{Wished: true})
	s.cancel("undo") // it undoes nothing
	s.list(operation.ListRequest{Wished: true}, "attempting")
}

func listPages(s *stage) {
	var ids []string
	for i := range 25 {
		id := fmt.Sprintf("p%02d", (i*7)%25)
		ids = append(ids, id)
		s.submit(id)
	}
	s.submit("a", "z", "Z", "é")
	slices.Sort(ids)
	var got []string
	after := ""
	for range 10 {
		if s.failed() {
			return
		}
		page, err := s.store.List(s.ctx, operation.ListRequest{Prefix: "p", After: after, Limit: 4})
		s.want(err == nil, "listing a page: %v", err)
		if len(page) == 0 {
			break
		}
		got = append(got, idsOf(page, func(r operation.Record) string { return r.ID })...)
		after = got[len(got)-1]
	}
	s.want(slices.Equal(got, ids), "in pages of 4: %q; want %q", got, ids)
	s.list(operation.ListRequest{Limit: 2}, "Z", "a") // the order of bytes
	s.list(operation.ListRequest{After: "p24"}, "z", "é")
	s.list(operation.ListRequest{After: "p2", Limit: 1}, "p20")
	s.list(operation.ListRequest{Prefix: "a", After: "p"})
}

func listBodies(s *stage) {
	j := s.begun("o", asking())
	s.complete(j, effective("r"))
	s.conflict("o", j.Number, effective("another"), 1)
	rec := s.list(operation.ListRequest{}, "o")
	s.want(s.failed() || len(rec[0].Attempts) == 1 && len(rec[0].Conflicts) == 1 && rec[0].Kept == operation.Whole && rec[0].Fingerprint == request("o").Fingerprint, "listed: %+v", rec)
	rec = s.list(operation.ListRequest{Bodies: true}, "o")
	s.want(s.failed() || string(rec[0].Request) == string(request("o").Request) && string(rec[0].Result) == "r" && string(rec[0].Attempts[0].Result) == "r" &&
		string(rec[0].Conflicts[0].Result) == "another", "listed with bodies: %+v", rec)
}

func listPrefix(s *stage) {
	s.submit("a%b", "axb", "a_b", "ab", `a\b`, "A%b", "日本")
	s.list(operation.ListRequest{Prefix: "a%"}, "a%b")
	s.list(operation.ListRequest{Prefix: "a_"}, "a_b")
	s.list(operation.ListRequest{Prefix: `a\`}, `a\b`)
	s.list(operation.ListRequest{Prefix: "a*"})
	s.list(operation.ListRequest{Prefix: "日"}, "日本")
	s.list(operation.ListRequest{Prefix: "日本語"})
}

func statistics(s *stage) {
	stats := func(want ...operation.Stat) {
		if s.failed() {
			return
		}
		got, err := s.store.Stats(s.ctx)
		s.want(err == nil, "statistics: %v", err)
		s.want(len(got) == len(want), "statistics: %+v; want %+v", got, want)
		for _, w := range want {
			i := slices.IndexFunc(got, func(g operation.Stat) bool { return g.Kind == w.Kind && g.State == w.State })
			s.want(i >= 0 && got[i].Count == w.Count && got[i].Stuck == w.Stuck && near(-got[i].Oldest, -w.Oldest), "statistics: %+v; want %+v among them", got, w)
		}
	}
	stats()
	s.submitted(requestOf(other, "r"))
	s.advance(time.Minute)
	s.states()
	one := func(state operation.State, oldest time.Duration) operation.Stat {
		return operation.Stat{Kind: kind, State: state, Count: 1, Oldest: oldest}
	}
	refund := operation.Stat{Kind: other, State: operation.Pending, Count: 1, Oldest: time.Minute}
	stats(refund, one(operation.Pending, 0), one(operation.Attempting, 0), one(operation.Uncertain, 0))
	s.advance(time.Minute)
	s.conflict("failed", 0, effective("after all"), 1)
	s.complete(s.claims(claiming(mute()), "pending")[0], noAnswer())
	refund.Oldest = 2 * time.Minute
	uncertain := one(operation.Uncertain, time.Minute)
	uncertain.Count, uncertain.Stuck = 2, 1
	stats(refund, one(operation.Attempting, time.Minute), uncertain, operation.Stat{Kind: kind, Count: 1, Oldest: time.Minute})
}
