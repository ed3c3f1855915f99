package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"maps"
)

// statements are prepared once on the writer's connection.
type statements struct {
	begin, commit                                          *sql.Stmt
	authority, saveAuthority                               *sql.Stmt
	session, insertSession, saveSession                    *sql.Stmt
	lease, grant, regrant, release, settle, revoke         *sql.Stmt
	ended, insertEnded, tellEnded, dropEnded               *sql.Stmt
	lastEnded, untold                                      *sql.Stmt
	heldOne, heldMany                                      *sql.Stmt
	ahead, insertAhead, dropAhead, countAhead, fencedBound *sql.Stmt
	expired, pruneLease, pruneSessions, pruneEnds          *sql.Stmt
}

const heldColumns = `SELECT l.name, l.token, l.acquisition, l.hold_end, s.owner, s.expiry, a.boot_id, a.anchor, a.mark, EXISTS (SELECT 1 FROM tenure_ahead)`

// texts pairs each statement with its SQL.
func (st *statements) texts() map[**sql.Stmt]string {
	all := st.leaseTexts()
	maps.Copy(all, st.sessionTexts())
	maps.Copy(all, st.operatorTexts())
	return all
}

func (st *statements) sessionTexts() map[**sql.Stmt]string {
	return map[**sql.Stmt]string{
		&st.begin:  `BEGIN IMMEDIATE`,
		&st.commit: `COMMIT`,
		&st.authority: `SELECT origin, issued, incarnation, boot_id, anchor, mark, EXISTS (SELECT 1 FROM tenure_ahead)
			FROM tenure_authority`,
		&st.saveAuthority: `UPDATE tenure_authority SET issued = ?, incarnation = ?, anchor = ?, mark = ? WHERE boot_id = ?`,

		&st.session: `SELECT since, owner, ttl, expiry, closed_below, recent, ended_up_to, ended, ended_at FROM tenure_session WHERE id = ?`,
		&st.insertSession: `INSERT INTO tenure_session (id, since, owner, ttl, expiry, closed_below, recent, ended_up_to, ended, ended_at)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		&st.saveSession: `UPDATE tenure_session SET expiry = ?, closed_below = ?, recent = ?, ended_up_to = ?, ended = ?, ended_at = ?
			WHERE id = ? AND ended = 0`,
	}
}

func (st *statements) leaseTexts() map[**sql.Stmt]string {
	return map[**sql.Stmt]string{
		&st.lease: `SELECT token, acquisition, names, session, max_hold, hold_end, over, over_at FROM tenure_lease WHERE name = ?`,
		// The common grant: the name is new, or its last acquisition is of the same session, released (1) and closed.
		&st.grant: `INSERT INTO tenure_lease (name, token, acquisition, names, session, max_hold, hold_end, over, over_at)
			VALUES (?1, ?2, ?3, 1, ?4, ?5, ?6, 0, 0)
			ON CONFLICT (name) DO UPDATE SET token = ?2, acquisition = ?3, names = 1, session = ?4, max_hold = ?5, hold_end = ?6, over = 0, over_at = 0
			WHERE over = 1 AND session = ?4 AND acquisition < ?7 AND token < ?2`,
		// Any other grant: over exactly the row that was read.
		&st.regrant: `INSERT INTO tenure_lease (name, token, acquisition, names, session, max_hold, hold_end, over, over_at)
			VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, 0, 0)
			ON CONFLICT (name) DO UPDATE SET token = ?2, acquisition = ?3, names = ?4, session = ?5, max_hold = ?6, hold_end = ?7, over = 0, over_at = 0
			WHERE token = ?8 AND token < ?2`,
		&st.release: `UPDATE tenure_lease SET over = ?1, over_at = ?2
			WHERE name = ?3 AND acquisition = ?4 AND session = ?5 AND names = ?6 AND token > ?7 AND over = 0 AND (hold_end = 0 OR hold_end > ?2)`,
		&st.settle: `UPDATE tenure_lease SET over = ?, over_at = hold_end WHERE name = ? AND acquisition = ? AND over = 0`,
		&st.revoke: `UPDATE tenure_lease SET over = ?, over_at = ? WHERE acquisition = ? AND session = ? AND token > ? AND over = 0 RETURNING name`,

		&st.ended: `SELECT how, reason FROM tenure_ended WHERE session = ? AND acquisition = ?`,
		&st.insertEnded: `INSERT INTO tenure_ended (session, acquisition, how, reason, told, at) VALUES (?, ?, ?, ?, ?, ?)
			ON CONFLICT (session, acquisition) DO NOTHING`,
		&st.tellEnded: `UPDATE tenure_ended SET told = 1 WHERE session = ? AND acquisition = ? AND told = 0`,
		&st.dropEnded: `DELETE FROM tenure_ended WHERE session = ? AND acquisition < ? AND how = ?`,
		&st.lastEnded: `SELECT max(acquisition) FROM tenure_ended WHERE session = ?`,
		&st.untold:    `SELECT acquisition, reason FROM tenure_ended WHERE session = ? AND told = 0 ORDER BY acquisition LIMIT ?`,

		&st.heldOne: heldColumns + ` FROM tenure_lease l CROSS JOIN tenure_session s ON s.id = l.session CROSS JOIN tenure_authority a
			WHERE l.name = ? AND l.over = 0 AND s.ended = 0 AND l.token > s.since`,
		&st.heldMany: heldColumns + ` FROM json_each(?) j CROSS JOIN tenure_lease l ON l.name = j.value
			CROSS JOIN tenure_session s ON s.id = l.session CROSS JOIN tenure_authority a
			WHERE l.over = 0 AND s.ended = 0 AND l.token > s.since`,
	}
}

func (st *statements) operatorTexts() map[**sql.Stmt]string {
	return map[**sql.Stmt]string{
		&st.ahead:       `SELECT token FROM tenure_ahead WHERE name = ?`,
		&st.insertAhead: `INSERT INTO tenure_ahead (name, token) VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET token = max(token, ?2)`,
		&st.countAhead:  `SELECT count(*) FROM tenure_ahead`,
		&st.dropAhead:   `DELETE FROM tenure_ahead WHERE token <= ?`,
		&st.fencedBound: `SELECT
			coalesce((SELECT s.ttl FROM tenure_lease l JOIN tenure_session s ON s.id = l.session AND s.since < l.token WHERE l.name = ?1 AND l.acquisition = ?2), 0),
			coalesce((SELECT min(ttl) FROM tenure_session WHERE ended = 0 AND expiry > a.anchor + ?3), 0)
			FROM tenure_authority a`,

		&st.expired: `SELECT id FROM tenure_session WHERE ended = 0 AND expiry <= ? ORDER BY expiry LIMIT ?`,
		// ?1 is the instant before which a thing must have been over, ?2 is now.
		&st.pruneLease: `DELETE FROM tenure_lease WHERE name = (
			SELECT l.name FROM tenure_lease l LEFT JOIN tenure_session s ON s.id = l.session
			WHERE l.name = ?3 AND ` + overForLong("?1", "?2") + `)`,
		&st.pruneEnds: `DELETE FROM tenure_ended WHERE (session, acquisition) IN (
			SELECT e.session, e.acquisition FROM tenure_ended e LEFT JOIN tenure_session s ON s.id = e.session
			WHERE e.at <= ?1 AND (s.id IS NULL OR s.ended <> 0 OR s.expiry <= ?2 OR e.told = 1 AND e.acquisition < s.closed_below)
			LIMIT ?3)`,
		&st.pruneSessions: `DELETE FROM tenure_session WHERE ?2 >= ?1 AND id IN (
			SELECT id FROM tenure_session WHERE ended <> 0 AND ended_at <= ?1
			UNION ALL SELECT id FROM tenure_session WHERE ended = 0 AND expiry <= ?1 LIMIT ?3)`,
	}
}

func prepareAll(ctx context.Context, conn *sql.Conn) (*statements, error) {
	st := new(statements)
	for target, text := range st.texts() {
		prepared, err := conn.PrepareContext(ctx, text) //nolint:sqlclosecheck // statements.close does, once the store shuts down
		if err != nil {
			return nil, errors.Join(err, st.close())
		}
		*target = prepared
	}
	return st, nil
}

func (st *statements) close() error {
	var err error
	for target := range st.texts() {
		if *target != nil {
			err = errors.Join(err, (*target).Close())
		}
	}
	return err
}
