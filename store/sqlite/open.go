package sqlite

import (
	"context"
	"crypto/rand"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/internal/clock"
	"github.com/tenure-go/tenure/lease"

	modernc "modernc.org/sqlite"
)

// Config says which file, and how.
type Config struct {
	Path   string       // of the database; made if it is missing, its folder must exist
	Adopt  bool         // install beside the tables of an application that are in the file already
	Logger *slog.Logger // nil: nothing is logged

	// Tests only, not for other packages.
	kernelClock func() time.Duration
	bootID      string
	wallClock   func() time.Time
}

func (c Config) wall() int64 {
	if c.wallClock != nil {
		return c.wallClock().UnixNano()
	}
	return time.Now().UnixNano()
}

// Store is an authority in a SQLite file. Safe for concurrent use. Several stores, in one process or in
// several, may have the same file open.
type Store struct {
	cfg       Config
	path      string // resolved
	log       *slog.Logger
	kernel    clock.Source
	bootID    string
	file      identity
	current   fence.ID // incarnation
	recovers  bool     // opened alone, beside a log that a crash left
	id        fence.ID // of the authority; it never changes
	side      *sideFile
	writeDB   *sql.DB
	readDB    *sql.DB
	conn      *sql.Conn // the writer's only connection
	stmts     *statements
	opStmts   map[string]*sql.Stmt // of operations, holds and messages; the writer's
	ofReaders sync.Mutex           // guards the next two
	holdStmts *Prepared            // the readers', of holds; nil until they are needed
	mailStmts *Prepared            // the readers', of messages; nil until they are needed
	mail      mailbox
	writer    *writer
	refused   atomic.Int64

	shutdown sync.Once
	closed   chan struct{} // closed when the writer has ended
}

// minVersion is the first SQLite release without the WAL reset fault.
const minVersion = "3.51.3"

// Open opens or makes the authority at cfg.Path. It waits, until ctx ends, while another process writes.
//
// It returns a [*FileError] that says what is wrong with the file and what to do; the database was not changed then.
// The store must be shut down with [Store.Shutdown].
func Open(ctx context.Context, cfg Config) (*Store, error) {
	s := &Store{cfg: cfg, log: cfg.Logger, closed: make(chan struct{})}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if err := s.resolve(); err != nil {
		return nil, err
	}
	if err := s.setClock(); err != nil {
		return nil, err
	}
	side, err := openSideFile(s.path+"-tenure", s.kernel)
	if err != nil {
		return nil, s.describe(fmt.Errorf("opening its side file: %w", err))
	}
	s.side = side
	if err := side.enterWithin(ctx, side.file.Name()); err != nil {
		return nil, errors.Join(&lease.UnavailableError{Op: "opening " + s.path, Err: err}, side.close())
	}
	err = s.openInTurn(ctx)
	if leaveErr := side.leave(); err == nil {
		err = leaveErr
	}
	if err != nil {
		return nil, errors.Join(s.describe(err), s.closeFiles())
	}
	s.writer = newWriter(s)
	go s.writer.run()
	return s, nil
}

// resolve follows links, so that one database has one side file.
func (s *Store) resolve() error {
	if s.cfg.Path == "" || strings.ContainsRune(s.cfg.Path, 0) {
		return &lease.InvalidError{Field: "path", Problem: "empty, or with a NUL"}
	}
	path, err := filepath.Abs(s.cfg.Path)
	if err != nil {
		return &FileError{Path: s.cfg.Path, Kind: ErrReadOnly, Err: err}
	}
	for range maxLinks {
		if resolved, err := filepath.EvalSymlinks(path); err == nil {
			s.path = resolved
			return nil
		} else if !errors.Is(err, fs.ErrNotExist) {
			return &FileError{Path: path, Kind: ErrReadOnly, Err: err}
		}
		folder, err := filepath.EvalSymlinks(filepath.Dir(path))
		if err != nil {
			return &FileError{Path: path, Kind: ErrReadOnly, Detail: "make its folder first", Err: err}
		}
		path = filepath.Join(folder, filepath.Base(path))
		target, _ := os.Readlink(path)
		switch {
		case target == "": // it is no link: the file is to be made here
			s.path = path
			return nil
		case filepath.IsAbs(target):
			path = target
		default:
			path = filepath.Join(folder, target)
		}
	}
	return &FileError{Path: s.cfg.Path, Kind: ErrReadOnly, Detail: "too many links lead to it"}
}

// maxLinks bounds the links to a file that does not exist yet.
const maxLinks = 16

func (s *Store) setClock() error {
	if s.cfg.kernelClock != nil {
		s.kernel, s.bootID = s.cfg.kernelClock, s.cfg.bootID
		return nil
	}
	var err error
	s.kernel, s.bootID, err = clock.Kernel()
	return err
}

// openInTurn does all that must not happen beside another opener or writer.
func (s *Store) openInTurn(ctx context.Context) error {
	alone, err := s.identifyFile()
	if err != nil {
		return err
	}
	if err := s.openDatabase(ctx); err != nil {
		return s.notRecovered(err)
	}
	if err := s.checkRecovered(ctx); err != nil {
		return err
	}
	if err := s.migrate(ctx, s.conn); err != nil {
		return err
	}
	if err := s.adoptClock(ctx, alone); err != nil {
		return err
	}
	if s.stmts, err = prepareAll(ctx, s.conn); err != nil {
		return err
	}
	_, err = s.conn.ExecContext(ctx, `PRAGMA busy_timeout = 0`)
	return err
}

// identifyFile compares the file with the one that the side file remembers, BEFORE SQLite opens it: SQLite
// would mix an old log into a new file. It reports whether no other store has the file open.
func (s *Store) identifyFile() (alone bool, err error) {
	known, haveRecord, err := s.side.readRecord()
	if err != nil {
		return false, err
	}
	s.file, err = identify(s.path)
	missing := errors.Is(err, fs.ErrNotExist)
	if err != nil && !missing {
		return false, err
	}
	alone, err = s.side.tryLock(lockIncarnation, exclusive)
	if err != nil {
		return false, err
	}
	if !alone {
		if missing || !haveRecord || known.file != s.file {
			return false, &FileError{Path: s.path, Kind: ErrReplaced,
				Detail: "other processes still use the file that was there before" + s.side.former + "; stop them all, then start again"}
		}
		s.current = known.incarnation
		return false, s.side.lock(lockIncarnation, shared)
	}
	// The log lies in the same folder, so the device says nothing here: its number may change with every mount.
	if (missing || haveRecord && !known.file.sameFile(s.file)) && s.hasLog() {
		return false, s.staleLog()
	}
	s.recovers = s.hasLog()
	if missing {
		if err := s.create(); err != nil {
			return false, err
		}
	}
	s.current = newRandomID()
	if err := s.side.writeRecord(record{incarnation: s.current, file: s.file}); err != nil {
		return false, err
	}
	// Between the two calls nobody can take the lock: whoever opens the file waits for this turn to end.
	if err := s.side.unlock(lockIncarnation); err != nil {
		return false, err
	}
	return true, s.side.lock(lockIncarnation, shared)
}

// create makes the empty file, so that its identity is known before SQLite opens it.
func (s *Store) create() error {
	file, err := os.OpenFile(s.path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if err := file.Close(); err != nil {
		return err
	}
	s.file, err = identify(s.path)
	return err
}

// pragma is a setting and what it must read back.
type pragma struct{ name, value, want string }

func pragmas() []pragma {
	return []pragma{
		{"journal_mode", "WAL", "wal"},
		{"synchronous", "FULL", "2"},
		{"foreign_keys", "ON", "1"},
		{"trusted_schema", "OFF", "0"},
	}
}

// dsn holds the settings, because only that reaches every connection; but for the journal mode, which is the file's
// own and must not be changed before it is known whose file this is.
func dsn(path string, busy time.Duration, readOnly bool) string {
	q := url.Values{"_txlock": {"immediate"}}
	q.Add("_pragma", "busy_timeout("+strconv.FormatInt(busy.Milliseconds(), 10)+")")
	for _, p := range pragmas() {
		if p.name != "journal_mode" {
			q.Add("_pragma", p.name+"("+p.value+")")
		}
	}
	if readOnly {
		q.Add("_pragma", "query_only(ON)")
	}
	u := url.URL{Scheme: "file", Path: filepath.ToSlash(path), RawQuery: q.Encode()}
	return u.String()
}

const (
	openBusy = 5 * time.Second // meets a closer or a recovery
	readBusy = time.Second
	readers  = 4
)

func (s *Store) openDatabase(ctx context.Context) error {
	var err error
	if s.writeDB, err = sql.Open("sqlite", dsn(s.path, openBusy, false)); err != nil {
		return err
	}
	s.writeDB.SetMaxOpenConns(1)
	if s.conn, err = s.writeDB.Conn(ctx); err != nil {
		return err
	}
	if _, err := s.inspect(ctx, s.conn); err != nil {
		return err
	}
	if _, err := s.conn.ExecContext(ctx, `PRAGMA journal_mode = WAL`); err != nil {
		return err
	}
	if err := s.conn.Raw(func(conn any) error { return s.checkSettings(ctx, conn) }); err != nil {
		return err
	}
	s.readDB, err = s.openPool(dsn(s.path, readBusy, true))
	return err
}

// openPool opens readers. Each connection is checked when it is made.
func (s *Store) openPool(text string) (*sql.DB, error) {
	connector, err := modernc.NewConnector(text)
	if err != nil {
		return nil, err
	}
	pool := sql.OpenDB(checkedConnector{connector, s.checkSettings})
	pool.SetMaxOpenConns(readers)
	pool.SetMaxIdleConns(readers)
	return pool, nil
}

type checkedConnector struct {
	driver.Connector
	check func(ctx context.Context, conn any) error
}

// Connect is part of [driver.Connector].
func (c checkedConnector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	if err := c.check(ctx, conn); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

// checkSettings reads the settings back: SQLite ignores a misspelt value without a word. conn is the driver's.
func (s *Store) checkSettings(ctx context.Context, conn any) error {
	version, err := readOne(ctx, conn, `SELECT sqlite_version()`)
	if err != nil {
		return err
	}
	if versionLess(version, minVersion) {
		return &FileError{Path: s.path, Kind: ErrSettings, Detail: "SQLite " + version + " is older than " + minVersion}
	}
	for _, p := range pragmas() {
		got, err := readOne(ctx, conn, `PRAGMA `+p.name)
		if err != nil {
			return err
		}
		if got != p.want {
			return &FileError{Path: s.path, Kind: ErrSettings, Detail: fmt.Sprintf("%s is %s, want %s; does the file system support shared memory?", p.name, got, p.want)}
		}
	}
	return nil
}

// readOne reads one value on the driver's own connection.
func readOne(ctx context.Context, conn any, query string) (string, error) {
	queryer, ok := conn.(driver.QueryerContext)
	if !ok {
		return "", fmt.Errorf("the driver's connection is a %T and cannot be asked", conn)
	}
	rows, err := queryer.QueryContext(ctx, query, nil)
	if err != nil {
		return "", err
	}
	value := make([]driver.Value, len(rows.Columns()))
	if err := errors.Join(rows.Next(value), rows.Close()); err != nil {
		return "", err
	}
	return fmt.Sprint(value[0]), nil
}

// versionLess compares dotted numbers.
func versionLess(a, b string) bool {
	as, bs := strings.Split(a, "."), strings.Split(b, ".")
	for i := range bs {
		var x, y int
		if i < len(as) {
			x, _ = strconv.Atoi(as[i])
		}
		y, _ = strconv.Atoi(bs[i])
		if x != y {
			return x < y
		}
	}
	return false
}

// adoptClock makes a new anchor when the kernel is another than the one that wrote the file last.
func (s *Store) adoptClock(ctx context.Context, alone bool) error {
	var bootID string
	var mark int64
	var id []byte
	err := s.conn.QueryRowContext(ctx, `SELECT id, boot_id, mark FROM tenure_authority`).Scan(&id, &bootID, &mark)
	if errors.Is(err, sql.ErrNoRows) {
		return &FileError{Path: s.path, Kind: ErrForeignFile, Detail: "tenure_authority is empty: this is not an authority's file"}
	}
	if err != nil {
		return err
	}
	copy(s.id[:], id)
	if bootID == s.bootID {
		return nil
	}
	if !alone {
		return s.otherBoot()
	}
	now := max(mark, s.cfg.wall())
	_, err = s.conn.ExecContext(ctx, `UPDATE tenure_authority SET boot_id = ?, anchor = ?, mark = ? WHERE boot_id = ?`,
		s.bootID, now-int64(s.kernel()), now, bootID)
	return err
}

func (s *Store) otherBoot() error {
	return &FileError{Path: s.path, Kind: ErrOtherBoot,
		Detail: "processes under another kernel have it open; one machine at a time can use the file: stop them, or use a database server"}
}

// Path returns the database file, links followed.
func (s *Store) Path() string { return s.path }

// Authority returns the authority's id, which every claim of its grants carries.
func (s *Store) Authority() fence.ID { return s.id }

// Refusals returns how many claims this store's [Store.Fenced] has refused since it was opened.
func (s *Store) Refusals() int64 { return s.refused.Load() }

// Guarantees states what the embedded store keeps. "TTL + 100 ms" for a successor holds while no process is
// stopped inside a write.
func (s *Store) Guarantees() lease.Guarantees {
	return lease.Guarantees{
		Store: "sqlite", DurableGrants: true, TokensSurvive: true, PreciseExpiry: true, CoLocated: true, Shared: true,
		MaxNames: lease.MaxNames, MinTTL: lease.MinTTL, MaxTTL: lease.MaxTTL,
	}
}

// Shutdown lets the write that is under way end, refuses all later ones, and closes the file. It ends no
// session. When ctx ends first it returns an error and the file stays open: another process keeps the writer's turn.
func (s *Store) Shutdown(ctx context.Context) error {
	s.shutdown.Do(func() {
		s.writer.stop(&FileError{Path: s.path, Kind: ErrShutDown})
		go func() {
			<-s.writer.ended
			if err := s.closeFiles(); err != nil {
				s.log.Warn("closing the database", "path", s.path, "error", err)
			}
			close(s.closed)
		}()
	})
	select {
	case <-s.closed:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("sqlite: shutting down %s: %w%s", s.path, ctx.Err(), s.side.heldBy())
	}
}

func (s *Store) closeFiles() error {
	var err error
	if s.stmts != nil {
		err = errors.Join(err, s.stmts.close())
	}
	err = errors.Join(err, s.closeStatements(), s.mail.close())
	if s.conn != nil {
		err = errors.Join(err, s.conn.Close())
	}
	for _, db := range []*sql.DB{s.readDB, s.writeDB} {
		if db != nil {
			err = errors.Join(err, db.Close())
		}
	}
	return errors.Join(err, s.side.close())
}

func newRandomID() fence.ID {
	var id fence.ID
	rand.Read(id[:]) // never returns an error, see crypto/rand
	id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80
	return id
}
