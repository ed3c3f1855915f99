package postgres

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/tenure-go/tenure/fence"
)

// openStore opens a store of its own on a database, as another process would. It is shut down when the test ends.
func openStore(t testing.TB, url string, o Options) *Store {
	t.Helper()
	s, err := Open(context.Background(), with(t, url, "pool_max_conns", "8"), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { shutDown(t, s) })
	return s
}

func shutDown(t testing.TB, s *Store) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_ = s.Shutdown(ctx) // its server may be down
}

// deadlocks counts what the server has reported of the harness's database, and says who waited for whom.
func deadlocks(h *harness) (int, string) {
	log := h.server.LogOf(h.database)
	n := strings.Count(log, "deadlock detected")
	_, said, _ := strings.Cut(log, "deadlock detected")
	return n, said
}

func uuids(ids []fence.ID) []pgtype.UUID {
	all := make([]pgtype.UUID, len(ids))
	for i, id := range ids {
		all[i] = uuid(id)
	}
	return all
}
