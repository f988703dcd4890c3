// What everything is in a cycle: computed from the recording alone, so that any cycle can be shown.

/** The number of the block at a row, slot and lane. */
function blockAt(data, row, slot, lane) {
  return (row * data.slots + slot) * data.lanes + lane;
}

/** The state of the engine's slots, its queue and its stages at the end of a cycle. */
function engineAt(data, run, cycle) {
  const slots = Array.from({ length: data.slots }, () => ({
    round: -1,
    seen: 0,
    opened: -1,
    rounds: [-1, -1],
    present: [0, 0],
    words: [null, null],
    sums: [[], []].map(() => Array.from({ length: data.lanes }, () => [])),
  }));
  const state = { slots, queue: 0, stages: {} };
  for (const change of run.changes) {
    const [kind, when, at] = change;
    if (when > cycle) break;
    if (kind === "state") {
      const [round, seen, , first, second] = change.slice(3);
      const slot = slots[at];
      if (round !== slot.round && round >= 0) {
        slot.rounds[round & 1] = round;
        slot.words[round & 1] = null;
        slot.sums[round & 1] = slot.sums[round & 1].map(() => []);
      }
      Object.assign(slot, { round, seen, present: [first, second] });
    } else if (kind === "words") slots[at].words[change[3]] = change.slice(4);
    else if (kind === "sum") slots[at].sums[change[3]][change[4]][change[5]] = { value: change[6], when };
    else if (kind === "queue") state.queue = at;
    else if (kind === "stage") state.stages[at] = change[3];
  }
  return state;
}

/** For each column of blocks, the row that workers were told last, and rows that a look-ahead leaps. */
function agreedAt(data, run, cycle, worker) {
  const agreed = {};
  for (const packet of run.packets) {
    const told = worker === null ? packet.first : packet.arrives;
    if (packet.kind !== "result" || told < 0 || told > cycle) continue;
    if (worker !== null && packet.worker !== worker) continue;
    packet.next.forEach((row, lane) => {
      agreed[`${packet.slot}.${lane}`] = row < 0 ? data.rows : row;
    });
  }
  return agreed;
}

/** For each block of a worker: what it is at, and the sum that has come back. */
function workerAt(data, run, cycle, worker) {
  const blocks = Array(data.rows * data.slots * data.lanes).fill("");
  const sums = Array(blocks.length).fill(null);
  for (const packet of run.packets) {
    if (packet.worker !== worker || packet.round === 0) continue;
    for (const [, number, value] of packet.blocks) {
      if (packet.kind === "data" && packet.sent <= cycle && blocks[number] !== "in") {
        const inside = packet.judged >= 0 && packet.judged <= cycle;
        blocks[number] = inside ? "in" : isLost(data, packet, cycle) ? "lost" : "flying";
      }
      if (packet.kind === "result" && packet.arrives >= 0 && packet.arrives <= cycle) {
        sums[number] = value;
        blocks[number] = blocks[number] === "in" ? "done" : blocks[number];
      }
    }
  }
  const agreed = agreedAt(data, run, cycle, worker);
  const skipped = blocks.map((_, number) => {
    const column = number % (data.slots * data.lanes);
    const row = Math.floor(number / (data.slots * data.lanes));
    const slot = Math.floor(column / data.lanes);
    return row < (agreed[`${slot}.${column % data.lanes}`] ?? 0) && isZero(data, number);
  });
  return { blocks, sums, skipped };
}

/** Whether a block is zero at all workers. */
function isZero(data, number) {
  const columns = data.slots * data.lanes;
  return data.values.every((rows) => rows[Math.floor(number / columns)][number % columns] === 0);
}

/** Whether a packet that never arrives has vanished by a cycle. */
function isLost(data, packet, cycle) {
  if (packet.up) return packet.first < 0 && cycle >= packet.sent + data.wire / 2;
  return packet.arrives < 0 && cycle >= packet.last + data.wire / 2;
}

/** The packets between workers and engine: from 0 at the worker to 1 at the engine. */
function onTheWire(data, run, cycle) {
  const found = [];
  for (const packet of run.packets) {
    const half = data.wire / 2;
    let place = null;
    if (packet.up) {
      const end = packet.first < 0 ? packet.sent + data.wire : packet.last;
      if (packet.sent <= cycle && cycle <= end) place = Math.min(1, (cycle - packet.sent) / data.wire);
      if (packet.first < 0 && place !== null) place = Math.min(place, 0.5);
    } else {
      const end = packet.arrives < 0 ? packet.last + data.wire : packet.arrives;
      if (packet.first <= cycle && cycle < end) place = 1 - Math.max(0, Math.min(1, (cycle - packet.last) / data.wire));
      if (packet.arrives < 0 && place !== null) place = Math.max(place, 0.5);
    }
    if (place !== null) found.push({ packet, place, lost: isLost(data, packet, cycle) });
  }
  return found;
}

/** How many blocks have been sent, and how many will never be. */
function tallyAt(data, run, cycle) {
  const sent = new Set();
  let frames = 0;
  for (const packet of run.packets) {
    if (!packet.up || packet.sent > cycle) continue;
    frames += 1;
    if (packet.round) packet.blocks.forEach(([, number]) => sent.add(`${packet.worker}.${number}`));
  }
  let skipped = 0;
  for (let worker = 0; worker < data.workers; worker += 1) {
    const agreed = agreedAt(data, run, cycle, null);
    for (let row = 0; row < data.rows; row += 1)
      for (let slot = 0; slot < data.slots; slot += 1)
        for (let lane = 0; lane < data.lanes; lane += 1)
          if (data.values[worker][row][slot * data.lanes + lane] === 0 && row < (agreed[`${slot}.${lane}`] ?? 0))
            skipped += 1;
  }
  return { sent: sent.size, frames, skipped };
}
