package drill

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"

	"github.com/tenure-go/tenure/drill/model"
	"github.com/tenure-go/tenure/fence"
)

// maxHistory bounds each part of a history; a drill of 1000 rounds stays far below.
const maxHistory = 100_000

// history reads everything that the resource tells, as of one moment.
func (r *resource) history(ctx context.Context) (model.History, error) {
	h := model.History{Content: map[int][]string{}}
	tx, err := r.db.BeginTx(ctx, &r.snapshot)
	if err != nil {
		return h, err
	}
	defer tx.Rollback()
	err = errors.Join(
		r.readContent(ctx, tx, &h), r.readLog(ctx, tx, &h), r.readAnswers(ctx, tx, &h), r.readEvents(ctx, tx, &h))
	if r.objects != nil && err == nil {
		h.Content, err = r.objects.content(ctx, r.run)
	}
	if r.files != nil && err == nil {
		h.Content, err = r.files.content(ctx)
	}
	return h, err
}

// each scans the rows of a query one by one.
func (r *resource) each(ctx context.Context, tx *sql.Tx, query string, scan func(rows *sql.Rows) error) error {
	rows, err := tx.QueryContext(ctx, r.sql(query)+` LIMIT `+r.numbered+`1`, maxHistory)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

func (r *resource) readContent(ctx context.Context, tx *sql.Tx, h *model.History) error {
	return r.each(ctx, tx, `SELECT round, content FROM [value] ORDER BY round`, func(rows *sql.Rows) error {
		var round int
		var text string
		if err := rows.Scan(&round, &text); err != nil {
			return err
		}
		var content []string
		err := json.Unmarshal([]byte(text), &content)
		h.Content[round] = content
		return err
	})
}

func (r *resource) readLog(ctx context.Context, tx *sql.Tx, h *model.History) error {
	return r.each(ctx, tx, `SELECT round, writer, element, token, content FROM [log] ORDER BY seq`, func(rows *sql.Rows) error {
		var w model.Write
		var text string
		if err := rows.Scan(&w.Round, &w.Writer, &w.Element, &w.Token, &text); err != nil {
			return err
		}
		err := json.Unmarshal([]byte(text), &w.Content)
		h.Writes = append(h.Writes, w)
		return err
	})
}

func (r *resource) readAnswers(ctx context.Context, tx *sql.Tx, h *model.History) error {
	return r.each(ctx, tx, `SELECT round, writer, element, token, late, unsent, accepted, newer, why FROM [answer] ORDER BY seq`,
		func(rows *sql.Rows) error {
			var a model.Answer
			err := rows.Scan(&a.Round, &a.Writer, &a.Element, &a.Token, &a.Late, &a.Unsent, &a.Accepted, &a.Newer, &a.Why)
			h.Answers = append(h.Answers, a)
			return err
		})
}

func (r *resource) readEvents(ctx context.Context, tx *sql.Tx, h *model.History) error {
	return r.each(ctx, tx, `SELECT round, token, what, at_ns FROM [event] ORDER BY seq`, func(rows *sql.Rows) error {
		var e model.Event
		var token int64
		err := rows.Scan(&e.Round, &token, &e.What, &e.At)
		e.Token = fence.Token(token)
		h.Events = append(h.Events, e)
		return err
	})
}
