/* Lease rules 1, 3 and 4: written verdicts, retries, releases that overtake their acquire, closed_below.
 *
 * One name and two sessions: a client that may use K acquisition ids one after another over a network
 * that loses, delays and doubles requests and replies; and a rival that takes the name when it finds it
 * free or its holder expired. The store is a database at READ COMMITTED: one step is one statement, row
 * locks are kept until the commit. Time is kept as what is left (rem = expiry - now): histories have no
 * end, and `rem == 0` is `now >= expiry`. README.md says what each variant (macro) is; the properties,
 * at the end, are the same text for all of them.
 */
#ifndef K
#define K 2                      /* the client's acquisition ids, 0 to K-1: numbers rise */
#endif
#ifndef R
#define R 1                      /* how often the rival may take the name */
#endif
#ifndef TTL
#define TTL 2
#endif
#define RIVAL K
#define NIL 255

/* an acquisition id, as its row in the store says */
#define ABSENT 0
#define LIVE 1                   /* granted; no end written at the id itself */
#define GONE 2                   /* released, or a tombstone */

/* an acquisition id, as its client sees it */
#define UNUSED 0
#define ASKING 1
#define HOLDS 2
#define LEAVING 3                /* released or abandoned: repeated until a durable reply came */
#define DONE 4                   /* forgotten: the client will never ask about it again */

/* ---- the store ---- */
byte rem = TTL;                  /* the client's session row: what is left, its end, */
bit ended;
byte below;                      /*   and closed_below: ids with a lower number are over for ever */
byte row[K];                     /* id rows */
byte cur = NIL;                  /* the lease row: its latest acquisition, NIL when released */
byte tok;                        /*   and the token of it */

/* Row locks on the session row: KEY SHARE (acquire) conflicts with FOR UPDATE (tombstone) only;
   NO KEY UPDATE (renewal, verdict), here excl, and FOR UPDATE exclude each other. */
bit leaselock, excl, keyshare;
byte pend;                       /* an uncommitted renewal: what will be left of it at the commit */

/* ---- the network and the client ---- */
bit acq[K], rel[K];              /* a request for this id is under way */
byte cl[K];

/* ---- history that the properties look at; no step decides by it ---- */
byte high;                       /* highest token granted */
bit given[K], over[K];           /* the id was granted; its end was written or told */
bit taken;                       /* a lease of the session was taken over */
byte watch;                      /* 1: the rival has read the clock for it; 2: and a renewal was committed since */
bit fell, again, twice, stray, bothwon, revived, lateown;

#ifdef REACH
bit refused, retried, tombed, floored, replayed, late;
#define SEEN(x) x = 1
#else
#define SEEN(x) skip
#endif

#ifdef WHEREWAIT
bit rewritten;                   /* the session row was updated while a renewal waited for it */
#define UPDATED rewritten = 1
#else
#define UPDATED skip
#endif

#ifdef ASYNC
byte undone = NIL;               /* the id whose release a crash of the store would undo */
#define DURABLE undone = NIL     /* a durable commit makes every earlier one durable */
#else
#define DURABLE skip
#endif

#define DEAD (ended || rem == 0)
#define MINE (cur != NIL && cur != RIVAL)

inline draw() {
  tok++;
  if :: tok <= high -> fell = 1 :: else -> high = tok fi
}

/* one of the requests that are under way, in any order */
#define PICK(kind, n) :: kind[n] -> kind[n] = 0; i = n
#if K == 1
#define PICK_ANY(kind) if PICK(kind, 0) fi
#elif K == 2
#define PICK_ANY(kind) if PICK(kind, 0) PICK(kind, 1) fi
#else
#define PICK_ANY(kind) if PICK(kind, 0) PICK(kind, 1) PICK(kind, 2) fi
#endif

/* ---- the client's acquires ---- */

#if defined(FLOORLESS)
#define FLOOR 0
#elif defined(FLOOREARLY)
#define FLOOR floor
#else
#define FLOOR below
#endif

#ifdef OWNEARLY
#define OWN own
#else
#define OWN DEAD
#endif

/* "Your session has expired" is no verdict, nobody wrote it: a renewal that has read the clock already may
   still commit. The client asks again, or releases. */
#ifdef FORGETEXPIRED
#define TELL_EXPIRED TELL(DONE)
#else
#define TELL_EXPIRED skip
#endif

#define TELL(answer) if :: cl[i] == ASKING -> cl[i] = answer :: true fi   /* or the reply is lost */

inline grant(i) {
  draw(); cur = i; row[i] = LIVE;
  if :: over[i] -> again = 1 :: else fi;
  if :: given[i] -> twice = 1 :: else -> given[i] = 1 fi;
  if :: DEAD -> lateown = 1 :: else fi;
  DURABLE; TELL(HOLDS)
}

/* The statement after the last lock that was waited for: own session, own id, then the grant. */
inline decide(i) {
  if
  :: ended || i < FLOOR || row[i] == GONE -> TELL(DONE);
     if :: !ended && i < FLOOR -> SEEN(floored) :: else fi;
     if :: !ended && row[i] == GONE && !given[i] -> SEEN(tombed) :: else fi
  :: else ->
     if
     :: OWN -> TELL_EXPIRED
#ifdef NEWTOKEN
     :: !OWN && row[i] == LIVE && cur == i -> grant(i)
#else
     :: !OWN && row[i] == LIVE && cur == i -> TELL(HOLDS); SEEN(retried)
#endif
     :: !OWN && row[i] == LIVE && cur != i -> TELL(DONE)
     :: !OWN && row[i] == ABSENT && cur == NIL -> grant(i)
     :: !OWN && row[i] == ABSENT && cur != NIL       /* refused: the client may ask again */
     fi
  fi
}

active proctype Acquire() {
  byte i = NIL;
#ifdef FLOOREARLY
  byte floor;
#endif
#ifdef OWNEARLY
  bit own;
#endif
end:
  do
  :: atomic {                              /* a request arrives; own session FOR KEY SHARE */
       PICK_ANY(acq); keyshare = 1;
#ifdef FLOOREARLY
       floor = below;
#endif
#ifdef OWNEARLY
       own = DEAD;
#endif
     };
     atomic {                              /* the lease row; the decision; commit */
       if
       :: !leaselock -> decide(i)
       :: true                             /* gave up waiting, or the connection broke: rolled back */
       fi;
#ifdef FLOOREARLY
       floor = 0;
#endif
#ifdef OWNEARLY
       own = 0;
#endif
       keyshare = 0; i = NIL
     }
  od
}

/* ---- the client's releases ---- */

#define DISMISS if :: cl[i] == LEAVING -> cl[i] = DONE :: true fi        /* or the reply is lost */

/* A release alone in its transaction may be asynchronous; then its answer is none. */
#ifdef ASYNC
#define WEAKLY(i) undone = i
#ifdef TRUSTASYNC
#define DISMISS_WEAKLY DISMISS
#else
#define DISMISS_WEAKLY skip
#endif
#else
#define WEAKLY(i) skip
#define DISMISS_WEAKLY DISMISS
#endif

inline free_lease(i) {
  if
#ifdef BYOWNER
  :: MINE -> if :: cur != i -> stray = 1 :: else fi; cur = NIL
#else
  :: cur == i -> cur = NIL; WEAKLY(i)
#endif
  :: else
  fi;
#ifdef RESTART
  if :: cur == NIL -> tok = 0 :: else fi;
#endif
#ifdef REGRANT
  row[i] = ABSENT;
#else
  row[i] = GONE;
#endif
  over[i] = 1
}

#ifdef BYOWNER
#define KNOWN MINE
#else
#define KNOWN (i >= below && row[i] == LIVE)
#endif

active proctype Release() {
  byte i = NIL;
end:
  do
  :: atomic { PICK_ANY(rel) };
     if                                    /* a look without a lock */
     :: atomic { !KNOWN && (i < below || row[i] == GONE) ->   /* answered after a durable write of its own */
          if :: MINE && cur != i -> SEEN(replayed) :: else fi;
          DURABLE; DISMISS }
     :: atomic { KNOWN };
known:
        atomic {
          if
          :: !leaselock -> free_lease(i); DISMISS_WEAKLY
          :: true                          /* gave up waiting, or the connection broke */
          fi
        }
     :: atomic { !KNOWN && i >= below && row[i] == ABSENT };
#if defined(NOTOMB)
        atomic { over[i] = 1; DISMISS }
#elif defined(TOMBUNLOCKED)
        atomic { if :: row[i] == ABSENT -> row[i] = GONE :: else fi; over[i] = 1; DURABLE; DISMISS }
#else
        atomic {                           /* session FOR UPDATE, look again, commit */
          !excl && !keyshare ->
          if
          :: i >= below && row[i] == LIVE -> goto known      /* nothing is touched; released as a known one */
          :: i >= below && row[i] == ABSENT -> row[i] = GONE; over[i] = 1; DURABLE; DISMISS
          :: i < below || row[i] == GONE -> DURABLE; DISMISS
          fi
        }
#endif
     fi;
     i = NIL
  od
}

/* ---- the client's renewals ---- */

#ifdef FLOORAHEAD
#define PASSED LEAVING
#else
#define PASSED DONE
#endif

active proctype Renew() {
  bit ok;
end:
  do
  :: !ended ->
#ifdef WHEREWAIT
     atomic { ok = !DEAD; rewritten = 0 };           /* UPDATE .. WHERE expiry > clock: judged, then it waits */
#endif
     atomic { !excl -> excl = 1 };                   /* session FOR NO KEY UPDATE */
     atomic {                                        /* the clock, in a later statement; the row is written */
#ifdef WHEREWAIT
       if :: rewritten -> ok = !DEAD :: else fi;     /* judged again only if the row changed meanwhile */
#else
       ok = !DEAD;
#endif
       if
       :: ok -> pend = TTL; if :: DEAD -> revived = 1 :: else fi
       :: else -> SEEN(late)
       fi
     };
     atomic {                                        /* commit */
       if
       :: ok ->
          rem = pend; pend = 0; ok = 0; DURABLE;
          if :: taken -> bothwon = 1 :: else fi;
          if :: watch == 1 -> watch = 2 :: else fi;
          /* closed_below, the lowest number the client may still ask about, and pruning. A renewal sent
             earlier carries a lower number and changes less: the present one stands for all. */
          if
          :: below < K && cl[below] >= PASSED ->
             if :: row[below] == GONE -> row[below] = ABSENT :: else fi;
             below++
          :: true
          fi
       :: else
       fi;
       excl = 0
     }
  od
}

/* ---- the rival ---- */

active proctype Rival() {
  byte turns;
  bit go;
end:
  do
  :: atomic { turns < R && cur != RIVAL && !leaselock -> leaselock = 1; turns++ };   /* the lease row */
     if
     :: atomic { MINE && !ended };
#ifndef TAKEEARLY
        atomic { !excl -> excl = 1 };                /* its session FOR NO KEY UPDATE */
#endif
        atomic { go = DEAD; watch = 1 }              /* the clock, in a later statement */
     :: atomic { !MINE || ended -> go = 1 }
     fi;
     atomic {
       if
       :: go ->
          if
          :: MINE ->
             taken = 1; over[cur] = 1;
             if :: watch == 2 -> bothwon = 1 :: else fi;
#ifndef NOVERDICT
             ended = 1; UPDATED
#endif
          :: else
          fi;
          draw(); cur = RIVAL; DURABLE
       :: !go -> turns--; SEEN(refused)
       :: go -> turns--                              /* the connection broke: rolled back */
       fi;
#ifndef TAKEEARLY
       if :: watch -> excl = 0 :: else fi;
#endif
       go = 0; watch = 0; leaselock = 0
     }
  :: atomic { cur == RIVAL && !leaselock -> cur = NIL; DURABLE }
  od
}

/* ---- what the client and the network may do at any time ---- */

proctype Client(byte i) {
end:
  do
  :: atomic { cl[i] == UNUSED && (i == 0 || cl[i - 1] >= LEAVING) -> cl[i] = ASKING; acq[i] = 1 }
  :: atomic { cl[i] == ASKING && !acq[i] -> acq[i] = 1 }      /* asks again under the same id */
  :: atomic { acq[i] -> acq[i] = 0 }                          /* lost */
  :: atomic {                                                 /* releases, or gives up asking */
       cl[i] == ASKING || cl[i] == HOLDS -> rel[i] = 1;
#ifdef CLIENTDROPS
       cl[i] = DONE
#else
       cl[i] = LEAVING
#endif
     }
  :: atomic { cl[i] == LEAVING && !rel[i] -> rel[i] = 1 }     /* repeats it */
  :: atomic { rel[i] -> rel[i] = 0 }                          /* lost */
  od
}

active proctype World() {
end:
  do
  :: atomic { !ended && !excl && !keyshare -> ended = 1 }     /* close, revocation */
  :: atomic { rem > 0 || pend > 0 -> if :: rem > 0 -> rem-- :: else fi; if :: pend > 0 -> pend-- :: else fi }
#ifdef CLOCKSTEPS
  :: atomic { rem < TTL -> rem++ }                            /* a step back makes the expired look live */
#endif
#ifdef ASYNC
  :: atomic {                                                 /* a crash, while no transaction is open */
       undone != NIL && !leaselock && !excl && !keyshare ->
       row[undone] = LIVE; cur = undone; over[undone] = 0; undone = NIL
     }
#endif
  od
}

init {
  byte n;
  atomic { do :: n < K -> run Client(n); n++ :: else -> break od; n = 0 }
}

/* ---- properties ---- */

#define UNEXPIRED(i) (row[i] == LIVE && !DEAD)
#define FORGOTTEN(i) (cl[i] == DONE && UNEXPIRED(i))
#if K == 1
#define HELD ((cur == RIVAL) + UNEXPIRED(0))
#define ORPHAN FORGOTTEN(0)
#elif K == 2
#define HELD ((cur == RIVAL) + UNEXPIRED(0) + UNEXPIRED(1))
#define ORPHAN (FORGOTTEN(0) || FORGOTTEN(1))
#else
#define HELD ((cur == RIVAL) + UNEXPIRED(0) + UNEXPIRED(1) + UNEXPIRED(2))
#define ORPHAN (FORGOTTEN(0) || FORGOTTEN(1) || FORGOTTEN(2))
#endif

/* L2: the token of every grant is above all that were granted */
#define RISING !fell
/* L1: at most one unexpired, unreleased acquisition of the name in the store */
#define ONELEASE (HELD <= 1)
/* an id whose end was written or told is never granted */
#define NOTAGAIN !again
/* an id is granted once: whoever asks again gets the same grant, with the same token */
#define ONEGRANT !twice
/* L3: a release frees the lease of its own acquisition only */
#define OWNLEASE !stray
/* what the client has forgotten, the store does not hold: no renewal keeps a lease alive that nobody knows */
#define NOORPHAN !(ORPHAN)
/* no renewal is committed between the clock reading of a take-over and its commit, nor ever after one */
#define ONEWINS !bothwon
/* L3: a renewal is granted only while the session is neither ended nor expired, as its row is written */
#define RENEWLIVE !revived
/* the same of the session under which a grant is made */
#define OWNLIVE !lateown

ltl rising { [] RISING }
ltl onelease { [] ONELEASE }
ltl notagain { [] NOTAGAIN }
ltl onegrant { [] ONEGRANT }
ltl ownlease { [] OWNLEASE }
ltl noorphan { [] NOORPHAN }
ltl onewins { [] ONEWINS }
ltl renewlive { [] RENEWLIVE }
ltl ownlive { [] OWNLIVE }

/* every one of them, in one search */
ltl all {
  [] (RISING && ONELEASE && NOTAGAIN && ONEGRANT && OWNLEASE && NOORPHAN && ONEWINS && RENEWLIVE && OWNLIVE)
}

ltl reach_takeover { [] !(taken && cur == RIVAL) }
#ifdef REACH
ltl reach_refused { [] !refused }
ltl reach_retried { [] !retried }
ltl reach_tombed { [] !tombed }
ltl reach_floored { [] !floored }
ltl reach_replayed { [] !replayed }
ltl reach_late { [] !late }
#endif
