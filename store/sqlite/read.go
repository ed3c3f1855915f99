package sqlite

import (
	"context"
	"database/sql"
	"strings"

	"github.com/tenure-go/tenure/lease"
)

const infoColumns = `SELECT l.name, l.token, l.acquisition, l.names, l.session, l.max_hold, l.hold_end, l.over, l.over_at,
	s.id IS NOT NULL, coalesce(s.since, 0), coalesce(s.owner, ''), coalesce(s.expiry, 0), coalesce(s.ended, 0), a.boot_id, a.anchor, a.mark
	FROM tenure_lease l CROSS JOIN tenure_authority a LEFT JOIN tenure_session s ON s.id = l.session`

// Get is part of [lease.Store].
func (s *Store) Get(ctx context.Context, name string) (lease.Info, error) {
	if err := lease.CheckName(name); err != nil {
		return lease.Info{}, err
	}
	infos, err := s.infos(ctx, "get", infoColumns+` WHERE l.name = ?`, name)
	if err != nil || len(infos) == 0 {
		return lease.Info{Name: name}, err
	}
	return infos[0], nil
}

// List is part of [lease.Lister].
func (s *Store) List(ctx context.Context, req lease.ListRequest) ([]lease.Info, error) {
	if err := req.Check(); err != nil {
		return nil, err
	}
	// Names are valid UTF-8, so no name that starts with the prefix sorts at or above prefix + 0xff.
	end := []byte(req.Prefix + "\xff")
	return s.infos(ctx, "list", infoColumns+` WHERE l.name >= ?1 AND l.name > ?2 AND (?1 = '' OR CAST(l.name AS BLOB) < ?3)
		ORDER BY l.name LIMIT ?4`, req.Prefix, req.After, end, req.Limit)
}

func (s *Store) infos(ctx context.Context, op, query string, args ...any) ([]lease.Info, error) {
	if err := s.checkIdentity(); err != nil {
		return nil, &lease.UnavailableError{Op: op, Err: err}
	}
	if stopped := s.writer.why(); stopped != nil {
		return nil, &lease.UnavailableError{Op: op, Err: stopped}
	}
	rows, err := s.readDB.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, &lease.UnavailableError{Op: op, Err: s.describe(err)}
	}
	defer rows.Close()
	var infos []lease.Info
	for rows.Next() {
		info, err := s.scanInfo(rows)
		if err != nil {
			return nil, &lease.UnavailableError{Op: op, Err: s.describe(err)}
		}
		infos = append(infos, info)
	}
	if err := rows.Err(); err != nil {
		return nil, &lease.UnavailableError{Op: op, Err: s.describe(err)}
	}
	return infos, nil
}

func (s *Store) scanInfo(rows *sql.Rows) (lease.Info, error) {
	var row leaseRow
	var acquisition, sessionID []byte
	var over, ended int
	var holder session
	var bootID string
	var anchor, mark int64
	err := rows.Scan(&row.name, &row.token, &acquisition, &row.names, &sessionID, &row.maxHold, &row.holdEnd, &over, &row.overAt,
		&holder.found, &holder.since, &holder.owner, &holder.expiry, &ended, &bootID, &anchor, &mark)
	if err != nil {
		return lease.Info{}, err
	}
	if bootID != s.bootID {
		return lease.Info{}, s.otherBoot()
	}
	row.name = strings.Clone(row.name)
	row.acquisition, row.session = asID(acquisition), asID(sessionID)
	row.over, holder.ended = lease.End(over), lease.End(ended)
	return row.info(&holder, max(mark, anchor+int64(s.kernel()))), nil
}
