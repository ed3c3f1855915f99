/* Lease rule 3 on PostgreSQL: an id that was granted stays closed when its lease row is overwritten.
 *
 * One name. Two sessions ask for it under ids that rise, give it back, and ask again. Each acquire of the
 * first is sent twice: a copy arrives at any time, or never. A lease row keeps its last acquisition and what that session has
 * said it will never ask about again (bound); when the row goes to another session, the former session's own row takes the
 * bound over; what neither covers gets a record. A transaction is one step: it holds the row. README.md says what each variant is.
 */
#ifndef KA
#define KA 2                     /* ids of session 0 */
#endif
#ifndef KB
#define KB 1                     /* ids of session 1 */
#endif
#define MOST 4

/* ---- the store ---- */
bit over = 1;                    /* the row: its last acquisition is over, */
byte sess = 2, acq;              /*   which was this id of this session; 2: nobody's yet */
byte bound;                      /*   its session asks for nothing below it */
byte stored[2];                  /* the session's own row: the same, as of a renewal, or of a row that went elsewhere */
bit ended[8];                    /* records: session * MOST + id */
#define REC(s, i) ended[(s) * MOST + (i)]

/* ---- the clients ---- */
bit pending[8];                  /* its grant may still be asked for */
bit wants[8];                    /* its client waits for the answer */
bit sent[8];                     /* it was asked for */
byte said[8];                    /* the bound that its acquire carries, both copies */
byte copies[8];                  /* copies on their way */

/* ---- history that the properties look at ---- */
byte granted[8];                 /* grants that were made, not repeated */
bit again, refused;

#ifdef REACH
bit carried, recorded, covered, late;
#define SEEN(x) x = 1
#else
#define SEEN(x) skip
#endif

#ifdef NOBOUND
#define KEPT 0
#else
#define KEPT bound
#endif
#define MAX(a, b) ((a) > (b) -> (a) : (b))
#define AT(s, i) ((s) * MOST + (i))

/* The lowest id that the session may still ask for; above all of them when there is none. */
inline lowest(s, r) {
  r = 1;
  do
  :: r < MOST && !pending[AT(s, r)] && sent[AT(s, r)] -> r++
  :: else -> break
  od
}

/* Before the row is overwritten by session s, which closes what lies below b. */
inline bury(s, b) {
  if
  :: sess == 2
#ifndef NOBOUND
  :: sess == s ->
     if
     :: acq >= MAX(MAX(bound, b), stored[s]) ->
#ifndef NORECORD
        REC(s, acq) = 1;
#endif
        SEEN(recorded)
     :: else -> SEEN(covered)
     fi
  :: sess == 1 - s ->
#ifndef NOHANDOVER
     if :: bound > stored[sess] -> stored[sess] = bound; SEEN(carried) :: else fi;
#endif
     if
     :: acq >= stored[sess] ->
#ifndef NORECORD
        REC(sess, acq) = 1;
#endif
        skip
     :: else
     fi
#else
  :: sess < 2                    /* only the session's own bound counts, as of its last renewal */
#endif
  fi
}

/* A copy of acquire i of session s arrives. */
proctype Copy(byte s; byte i) {
  bit old;
  atomic {
    copies[AT(s, i)]--;
    old = !pending[AT(s, i)];
    if
    :: sess == s && acq == i && !over -> wants[AT(s, i)] = 0          /* the same grant */
    :: else ->
       if
       :: sess == s && acq == i && over || REC(s, i) || i < MAX(stored[s], said[AT(s, i)]) || sess == s && i < KEPT ->
          if :: old -> SEEN(late) :: else fi;
          if :: wants[AT(s, i)] -> refused = 1 :: else fi
       :: else ->
          if
          :: !over                                                    /* held by another: nothing is written */
          :: over ->
             bury(s, said[AT(s, i)]);
             bound = (sess == s -> MAX(bound, said[AT(s, i)]) : said[AT(s, i)]);
             sess = s; acq = i; over = 0;
             granted[AT(s, i)]++;
             if :: granted[AT(s, i)] > 1 -> again = 1 :: else fi;
             wants[AT(s, i)] = 0
          fi
       fi
    fi
  }
}

/* One id: ask, wait for the answer, give it back. Two of a session run at once, so an older id may be pending beside a newer one. */
proctype Asker(byte s; byte first; byte last; byte step; byte n) {
  byte i = first;
  byte b;
  do
  :: i > last -> break
  :: else ->
     atomic { i == 1 || sent[AT(s, i - 1)] ->                         /* ids are chosen in order */
       sent[AT(s, i)] = 1; pending[AT(s, i)] = 1; wants[AT(s, i)] = 1;
       lowest(s, b); said[AT(s, i)] = b;
       copies[AT(s, i)] = n; run Copy(s, i);
       if :: n == 2 -> run Copy(s, i) :: else fi
     };
     if
     :: atomic { !wants[AT(s, i)] -> pending[AT(s, i)] = 0 };         /* granted: its acquire is never repeated */
        atomic { lowest(s, b);
          if
          :: sess == s && acq == i && !over -> over = 1; bound = MAX(bound, b)
          :: else
          fi }
     :: atomic { wants[AT(s, i)] && copies[AT(s, i)] < n -> wants[AT(s, i)] = 0; pending[AT(s, i)] = 0 };
        atomic {                                                      /* refused, or given up: the id is closed, under the session's lock */
          if
          :: sess == s && acq == i && !over -> over = 1
          :: sess == s && acq == i && over
          :: else -> if :: i >= stored[s] -> REC(s, i) = 1 :: else fi
          fi }
     fi;
     i = i + step
  od
}

/* A renewal, at any time, or never. */
proctype Renewal(byte s) {
  byte b;
  if
  :: atomic { lowest(s, b); stored[s] = MAX(stored[s], b) }
  :: skip
  fi
}

init {
  atomic {
#ifdef SEQ                       /* one id at a time: more of them */
    run Asker(0, 1, KA, 1, 2);
#else
    run Asker(0, 1, KA, 2, 2); run Asker(0, 2, KA, 2, 2);
#endif
    run Asker(1, 1, KB, 1, 1);
    run Renewal(0)
  }
}

#define QUIET (_nr_pr <= 1)

ltl notagain { [] !again }
ltl noorphan { [] (QUIET -> over) }
ltl wanted { [] !refused }
ltl all { [] (!again && !refused && (QUIET -> over)) }
#ifdef REACH
ltl reach_carried { [] !carried }
ltl reach_recorded { [] !recorded }
ltl reach_covered { [] !covered }
ltl reach_late { [] !late }
#endif
