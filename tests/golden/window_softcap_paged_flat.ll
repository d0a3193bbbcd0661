; attention q=fp32 kv=fp32 heads=2/1 dim=16 kv_layout=paged:16:hnd softcap=30 window=100 lse=natural merge=lse | schedule family=vector tile=32 rows=2 warps=1 partition=flat blocks=8 reduce=last_block | cpu:x86-64-v2

define void @splitkv_split_fp32_h2x1_d16_86cf1930(ptr noalias readonly %args, i64 %block) #0 {
entry:
  %batch_row.found = alloca [8 x i64], align 8
  %batch_row.found.1 = alloca [8 x i64], align 8
  %batch.rows.i32.field = getelementptr i8, ptr %args, i64 560
  %batch.rows.i32 = load i32, ptr %batch.rows.i32.field, align 4
  %batch.rows = sext i32 %batch.rows.i32 to i64
  ; the line of all units, and where the batch row begins in it
  %batch.i32.field = getelementptr i8, ptr %args, i64 560
  %batch.i32 = load i32, ptr %batch.i32.field, align 4
  %batch = sext i32 %batch.i32 to i64
  br label %row.head

row.head:
  %row = phi i64 [ 0, %entry ], [ %row.next, %row.body ]
  %total_units = phi i64 [ 0, %entry ], [ %total_units.next, %row.body ]
  %row_start = phi i64 [ 0, %entry ], [ %row_start.next, %row.body ]
  %row.more = icmp slt i64 %row, %batch
  br i1 %row.more, label %row.body, label %row.done

row.body:
  call void @find_row(ptr %args, i64 %row, ptr %batch_row.found)
  %queries = load i64, ptr %batch_row.found, align 8
  %first_token.at = getelementptr i64, ptr %batch_row.found, i64 1
  %first_token = load i64, ptr %first_token.at, align 8
  %batch_index.at = getelementptr i64, ptr %batch_row.found, i64 2
  %batch_index = load i64, ptr %batch_index.at, align 8
  %total.at = getelementptr i64, ptr %batch_row.found, i64 3
  %total = load i64, ptr %total.at, align 8
  %kv_len.at = getelementptr i64, ptr %batch_row.found, i64 4
  %kv_len = load i64, ptr %kv_len.at, align 8
  %first_key.at = getelementptr i64, ptr %batch_row.found, i64 5
  %first_key = load i64, ptr %first_key.at, align 8
  %end_key.at = getelementptr i64, ptr %batch_row.found, i64 6
  %end_key = load i64, ptr %end_key.at, align 8
  %tiles.at = getelementptr i64, ptr %batch_row.found, i64 7
  %tiles = load i64, ptr %tiles.at, align 8
  %larger = icmp sgt i64 %tiles, 1
  %units = select i1 %larger, i64 %tiles, i64 1
  %row_start.past = add i64 %row_start, %units
  %row.is_before = icmp slt i64 %row, 0
  %total_units.next = add i64 %total_units, %units
  %row_start.next = select i1 %row.is_before, i64 %row_start.past, i64 %row_start
  %row.next = add i64 %row, 1
  br label %row.head

row.done:
  %blocks.i32.field = getelementptr i8, ptr %args, i64 568
  %blocks.i32 = load i32, ptr %blocks.i32.field, align 4
  %blocks = sext i32 %blocks.i32 to i64
  %smaller = icmp slt i64 %blocks, %total_units
  %blocks.used = select i1 %smaller, i64 %blocks, i64 %total_units
  %smaller.1 = icmp slt i64 %block, %blocks.used
  %block.own = select i1 %smaller.1, i64 %block, i64 %blocks.used
  %block.next = add i64 %block, 1
  %smaller.2 = icmp slt i64 %block.next, %blocks.used
  %block.next.own = select i1 %smaller.2, i64 %block.next, i64 %blocks.used
  %block.share = mul i64 %block.own, %total_units
  %block.first_unit = udiv i64 %block.share, %blocks.used
  %block.share.1 = mul i64 %block.next.own, %total_units
  %block.first_unit.1 = udiv i64 %block.share.1, %blocks.used
  ; the batch rows whose units meet [first_unit, end) of this block
  br label %batch_row.head

batch_row.head:
  %batch_row = phi i64 [ 0, %row.done ], [ %batch_row.next, %row.meets.end ]
  %row.start = phi i64 [ 0, %row.done ], [ %row.end, %row.meets.end ]
  %batch_row.more = icmp slt i64 %batch_row, %batch.rows
  br i1 %batch_row.more, label %batch_row.body, label %batch_row.done

batch_row.body:
  call void @find_row(ptr %args, i64 %batch_row, ptr %batch_row.found.1)
  %queries.1 = load i64, ptr %batch_row.found.1, align 8
  %first_token.at.1 = getelementptr i64, ptr %batch_row.found.1, i64 1
  %first_token.1 = load i64, ptr %first_token.at.1, align 8
  %batch_index.at.1 = getelementptr i64, ptr %batch_row.found.1, i64 2
  %batch_index.1 = load i64, ptr %batch_index.at.1, align 8
  %total.at.1 = getelementptr i64, ptr %batch_row.found.1, i64 3
  %total.1 = load i64, ptr %total.at.1, align 8
  %kv_len.at.1 = getelementptr i64, ptr %batch_row.found.1, i64 4
  %kv_len.1 = load i64, ptr %kv_len.at.1, align 8
  %first_key.at.1 = getelementptr i64, ptr %batch_row.found.1, i64 5
  %first_key.1 = load i64, ptr %first_key.at.1, align 8
  %end_key.at.1 = getelementptr i64, ptr %batch_row.found.1, i64 6
  %end_key.1 = load i64, ptr %end_key.at.1, align 8
  %tiles.at.1 = getelementptr i64, ptr %batch_row.found.1, i64 7
  %tiles.1 = load i64, ptr %tiles.at.1, align 8
  %larger.1 = icmp sgt i64 %tiles.1, 1
  %units.1 = select i1 %larger.1, i64 %tiles.1, i64 1
  %row.end = add i64 %row.start, %units.1
  %larger.2 = icmp sgt i64 %block.first_unit, %row.start
  %meet.begin = select i1 %larger.2, i64 %block.first_unit, i64 %row.start
  %smaller.3 = icmp slt i64 %block.first_unit.1, %row.end
  %meet.end = select i1 %smaller.3, i64 %block.first_unit.1, i64 %row.end
  %meets = icmp slt i64 %meet.begin, %meet.end
  br i1 %meets, label %row.meets.then, label %row.meets.end

row.meets.then:
  %meet.offset = sub i64 %meet.begin, %row.start
  %in_row.first = udiv i64 %meet.offset, %units.1
  %meet.last = sub i64 %meet.end, 1
  %meet.last.offset = sub i64 %meet.last, %row.start
  %in_row.last = udiv i64 %meet.last.offset, %units.1
  %in_row.end = add i64 %in_row.last, 1
  br label %in_row.head

in_row.head:
  %in_row = phi i64 [ %in_row.first, %row.meets.then ], [ %in_row.next, %in_row.body ]
  %in_row.more = icmp slt i64 %in_row, %in_row.end
  br i1 %in_row.more, label %in_row.body, label %in_row.done

in_row.body:
  %sequence = add i64 %batch_row, %in_row
  %units.before = mul i64 %in_row, %units.1
  %first_unit = add i64 %row.start, %units.before
  %tile.low = sub i64 %meet.begin, %first_unit
  %larger.3 = icmp sgt i64 %tile.low, 0
  %piece.first = select i1 %larger.3, i64 %tile.low, i64 0
  %tile.high = sub i64 %meet.end, %first_unit
  %smaller.4 = icmp slt i64 %tile.high, %tiles.1
  %piece.end = select i1 %smaller.4, i64 %tile.high, i64 %tiles.1
  %starts.later = icmp sgt i64 %first_unit, %block.first_unit
  %slot.odd = zext i1 %starts.later to i64
  %slot.even = shl i64 %block, 1
  %slot = add i64 %slot.even, %slot.odd
  %unit.end = add i64 %first_unit, %units.1
  %unit.last = sub i64 %unit.end, 1
  %unit.past = add i64 %first_unit, 1
  %unit.share = mul i64 %unit.past, %blocks.used
  %unit.share.last = sub i64 %unit.share, 1
  %unit.block = udiv i64 %unit.share.last, %total_units
  %unit.past.1 = add i64 %unit.last, 1
  %unit.share.1 = mul i64 %unit.past.1, %blocks.used
  %unit.share.last.1 = sub i64 %unit.share.1, 1
  %unit.block.1 = udiv i64 %unit.share.last.1, %total_units
  %blocks.past = sub i64 %unit.block.1, %unit.block
  %pieces = add i64 %blocks.past, 1
  call void @attend_piece(ptr %args, i64 %sequence, i64 %batch_row, i64 %in_row, i64 0, i64 %piece.first, i64 %piece.end, i64 1, i64 %slot, i64 %pieces, i64 %first_unit, i64 %total_units)
  %in_row.next = add i64 %in_row, 1
  br label %in_row.head

in_row.done:
  br label %row.meets.end

row.meets.end:
  %batch_row.next = add i64 %batch_row, 1
  br label %batch_row.head

batch_row.done:
  %q_offset.field = getelementptr i8, ptr %args, i64 72
  %q_offset = load ptr, ptr %q_offset.field, align 8
  %queries.alike = icmp eq ptr %q_offset, null
  br i1 %queries.alike, label %all_written.then, label %all_written.else

all_written.then:
  br label %all_written.end

all_written.else:
  %grid.i32.field = getelementptr i8, ptr %args, i64 568
  %grid.i32 = load i32, ptr %grid.i32.field, align 4
  %grid = sext i32 %grid.i32 to i64
  call void @clear_tokens(ptr %args, i64 %block, i64 %grid)
  br label %all_written.end

all_written.end:
  ret void
}

define internal void @find_row(ptr noalias readonly %args, i64 %number, ptr noalias %where) #0 {
entry:
  %kv_lens.field = getelementptr i8, ptr %args, i64 56
  %kv_lens = load ptr, ptr %kv_lens.field, align 8
  %kv_len.is_one = icmp eq ptr %kv_lens, null
  br i1 %kv_len.is_one, label %kv_len.stored.choice.then, label %kv_len.stored.choice.else

kv_len.stored.choice.then:
  %kv_len.host.i32.field = getelementptr i8, ptr %args, i64 576
  %kv_len.host.i32 = load i32, ptr %kv_len.host.i32.field, align 4
  %kv_len.host = sext i32 %kv_len.host.i32 to i64
  br label %kv_len.stored.choice.end

kv_len.stored.choice.else:
  %kv_len.bytes.i32.field = getelementptr i8, ptr %args, i64 572
  %kv_len.bytes.i32 = load i32, ptr %kv_len.bytes.i32.field, align 4
  %kv_len.bytes = sext i32 %kv_len.bytes.i32 to i64
  %kv_len.is_wide = icmp eq i64 %kv_len.bytes, 8
  br i1 %kv_len.is_wide, label %kv_len.element.choice.then, label %kv_len.element.choice.else

kv_len.element.choice.then:
  %kv_len.i64.at = getelementptr i64, ptr %kv_lens, i64 %number
  %kv_len.i64 = load i64, ptr %kv_len.i64.at, align 8
  br label %kv_len.element.choice.end

kv_len.element.choice.else:
  %kv_len.narrow.at = getelementptr i32, ptr %kv_lens, i64 %number
  %kv_len.narrow.i32 = load i32, ptr %kv_len.narrow.at, align 4
  %kv_len.narrow = sext i32 %kv_len.narrow.i32 to i64
  br label %kv_len.element.choice.end

kv_len.element.choice.end:
  %kv_len.element = phi i64 [ %kv_len.i64, %kv_len.element.choice.then ], [ %kv_len.narrow, %kv_len.element.choice.else ]
  br label %kv_len.stored.choice.end

kv_len.stored.choice.end:
  %kv_len.stored = phi i64 [ %kv_len.host, %kv_len.stored.choice.then ], [ %kv_len.element, %kv_len.element.choice.end ]
  %larger = icmp sgt i64 %kv_len.stored, 0
  %kv_len = select i1 %larger, i64 %kv_len.stored, i64 0
  %q_offset.field = getelementptr i8, ptr %args, i64 72
  %q_offset = load ptr, ptr %q_offset.field, align 8
  %queries.alike = icmp eq ptr %q_offset, null
  br i1 %queries.alike, label %first_token.choice.then, label %first_token.choice.else

first_token.choice.then:
  br label %first_token.choice.end

first_token.choice.else:
  %q_offset.begin.at = getelementptr i32, ptr %q_offset, i64 %number
  %q_offset.begin.i32 = load i32, ptr %q_offset.begin.at, align 4
  %q_offset.begin = sext i32 %q_offset.begin.i32 to i64
  br label %first_token.choice.end

first_token.choice.end:
  %first_token = phi i64 [ 0, %first_token.choice.then ], [ %q_offset.begin, %first_token.choice.else ]
  br i1 %queries.alike, label %queries.stored.choice.then, label %queries.stored.choice.else

queries.stored.choice.then:
  br label %queries.stored.choice.end

queries.stored.choice.else:
  %row.next = add i64 %number, 1
  %q_offset.end.at = getelementptr i32, ptr %q_offset, i64 %row.next
  %q_offset.end.i32 = load i32, ptr %q_offset.end.at, align 4
  %q_offset.end = sext i32 %q_offset.end.i32 to i64
  %q_offset.is_known = icmp sge i64 %first_token, 0
  %q_offset.rises = icmp sgt i64 %q_offset.end, %first_token
  %queries.between = sub i64 %q_offset.end, %first_token
  %queries.any = and i1 %q_offset.is_known, %q_offset.rises
  %queries.ragged = select i1 %queries.any, i64 %queries.between, i64 0
  br label %queries.stored.choice.end

queries.stored.choice.end:
  %queries.stored = phi i64 [ 1, %queries.stored.choice.then ], [ %queries.ragged, %queries.stored.choice.else ]
  %smaller = icmp slt i64 %queries.stored, 1
  %queries = select i1 %smaller, i64 %queries.stored, i64 1
  %batch_index = select i1 %queries.alike, i64 %number, i64 0
  ; the keys that any of the row's queries sees
  %query.first = sub i64 %kv_len, %queries
  %query.last = sub i64 %kv_len, 1
  %difference = sub i64 %query.first, 99
  %larger.1 = icmp sgt i64 0, %difference
  %larger.one = select i1 %larger.1, i64 0, i64 %difference
  %larger.2 = icmp sgt i64 %larger.one, 0
  %first_key.seen = select i1 %larger.2, i64 %larger.one, i64 0
  %kv_begins.field = getelementptr i8, ptr %args, i64 64
  %kv_begins = load ptr, ptr %kv_begins.field, align 8
  %kv_begin.none = icmp eq ptr %kv_begins, null
  br i1 %kv_begin.none, label %kv_begin.choice.then, label %kv_begin.choice.else

kv_begin.choice.then:
  br label %kv_begin.choice.end

kv_begin.choice.else:
  %kv_begin.stored.at = getelementptr i32, ptr %kv_begins, i64 %number
  %kv_begin.stored.i32 = load i32, ptr %kv_begin.stored.at, align 4
  %kv_begin.stored = sext i32 %kv_begin.stored.i32 to i64
  br label %kv_begin.choice.end

kv_begin.choice.end:
  %kv_begin = phi i64 [ 0, %kv_begin.choice.then ], [ %kv_begin.stored, %kv_begin.choice.else ]
  %larger.3 = icmp sgt i64 %first_key.seen, %kv_begin
  %first_key = select i1 %larger.3, i64 %first_key.seen, i64 %kv_begin
  %sum = add i64 %query.last, 1
  %larger.4 = icmp sgt i64 %sum, 0
  %end_key.seen = select i1 %larger.4, i64 %sum, i64 0
  %queries.exist = icmp sgt i64 %queries, 0
  %smaller.1 = icmp slt i64 %end_key.seen, %kv_len
  %end_key.stored = select i1 %smaller.1, i64 %end_key.seen, i64 %kv_len
  %end_key = select i1 %queries.exist, i64 %end_key.stored, i64 0
  %end_key.up = add i64 %end_key, 31
  %tile.end = udiv i64 %end_key.up, 32
  %keys.any = icmp sgt i64 %end_key, %first_key
  %tile.first = udiv i64 %first_key, 32
  %tiles.between = sub i64 %tile.end, %tile.first
  %tiles = select i1 %keys.any, i64 %tiles.between, i64 0
  store i64 %queries, ptr %where, align 8
  %first_token.to = getelementptr i64, ptr %where, i64 1
  store i64 %first_token, ptr %first_token.to, align 8
  %batch_index.to = getelementptr i64, ptr %where, i64 2
  store i64 %batch_index, ptr %batch_index.to, align 8
  %total.to = getelementptr i64, ptr %where, i64 3
  store i64 %kv_len, ptr %total.to, align 8
  %kv_len.to = getelementptr i64, ptr %where, i64 4
  store i64 %kv_len, ptr %kv_len.to, align 8
  %first_key.to = getelementptr i64, ptr %where, i64 5
  store i64 %first_key, ptr %first_key.to, align 8
  %end_key.to = getelementptr i64, ptr %where, i64 6
  store i64 %end_key, ptr %end_key.to, align 8
  %tiles.to = getelementptr i64, ptr %where, i64 7
  store i64 %tiles, ptr %tiles.to, align 8
  ret void
}

define internal void @attend_piece(ptr noalias readonly %args, i64 %sequence, i64 %batch_row, i64 %kv_head, i64 %row_block, i64 %piece.first, i64 %piece.end, i64 %piece.step, i64 %slot, i64 %pieces, i64 %first_unit, i64 %total_units) #0 {
entry:
  %batch_row.found = alloca [8 x i64], align 8
  %q = alloca [32 x double], align 64
  %m = alloca [2 x float], align 64
  %l = alloca [2 x float], align 64
  %acc = alloca [32 x float], align 64
  %rescale = alloca [2 x float], align 64
  %scores = alloca [64 x double], align 64
  %weights = alloca [64 x float], align 64
  %k_at = alloca [32 x ptr], align 64
  %v_at = alloca [32 x ptr], align 64
  call void @find_row(ptr %args, i64 %batch_row, ptr %batch_row.found)
  %queries = load i64, ptr %batch_row.found, align 8
  %first_token.at = getelementptr i64, ptr %batch_row.found, i64 1
  %first_token = load i64, ptr %first_token.at, align 8
  %batch_index.at = getelementptr i64, ptr %batch_row.found, i64 2
  %batch_index = load i64, ptr %batch_index.at, align 8
  %total.at = getelementptr i64, ptr %batch_row.found, i64 3
  %total = load i64, ptr %total.at, align 8
  %kv_len.at = getelementptr i64, ptr %batch_row.found, i64 4
  %kv_len = load i64, ptr %kv_len.at, align 8
  %first_key.at = getelementptr i64, ptr %batch_row.found, i64 5
  %first_key = load i64, ptr %first_key.at, align 8
  %end_key.at = getelementptr i64, ptr %batch_row.found, i64 6
  %end_key = load i64, ptr %end_key.at, align 8
  %tiles.at = getelementptr i64, ptr %batch_row.found, i64 7
  %tiles = load i64, ptr %tiles.at, align 8
  %query_rows = mul i64 %queries, 2
  %rows.before = mul i64 %row_block, 2
  %rows.left = sub i64 %query_rows, %rows.before
  %smaller = icmp slt i64 %rows.left, 2
  %valid_rows = select i1 %smaller, i64 %rows.left, i64 2
  ; a row block without queries has nothing to write: none of its pieces arrives
  %rows.exist = icmp sgt i64 %valid_rows, 0
  br i1 %rows.exist, label %attend.then, label %attend.end

attend.then:
  %k.page.field = getelementptr i8, ptr %args, i64 304
  %k.page = load i64, ptr %k.page.field, align 8
  %k.page.bytes = mul i64 %k.page, 4
  %k.token.field = getelementptr i8, ptr %args, i64 320
  %k.token = load i64, ptr %k.token.field, align 8
  %k.token.bytes = mul i64 %k.token, 4
  %k.head.field = getelementptr i8, ptr %args, i64 312
  %k.head = load i64, ptr %k.head.field, align 8
  %k.head.bytes = mul i64 %k.head, 4
  %k.head.offset = mul i64 %k.head.bytes, %kv_head
  %k.all.field = getelementptr i8, ptr %args, i64 16
  %k.all = load ptr, ptr %k.all.field, align 8
  %k.base = getelementptr i8, ptr %k.all, i64 %k.head.offset
  %k.page_offset.field = getelementptr i8, ptr %args, i64 96
  %k.page_offset = load ptr, ptr %k.page_offset.field, align 8
  %k.table.is_2d = icmp eq ptr %k.page_offset, null
  br i1 %k.table.is_2d, label %k.page_list.offset.choice.then, label %k.page_list.offset.choice.else

k.page_list.offset.choice.then:
  %k.page_table_stride.field = getelementptr i8, ptr %args, i64 496
  %k.page_table_stride = load i64, ptr %k.page_table_stride.field, align 8
  %k.page_list.from_row = mul i64 %batch_row, %k.page_table_stride
  br label %k.page_list.offset.choice.end

k.page_list.offset.choice.else:
  %k.page_offset.at = getelementptr i64, ptr %k.page_offset, i64 %batch_row
  %k.page_list.from_offset = load i64, ptr %k.page_offset.at, align 8
  br label %k.page_list.offset.choice.end

k.page_list.offset.choice.end:
  %k.page_list.offset = phi i64 [ %k.page_list.from_row, %k.page_list.offset.choice.then ], [ %k.page_list.from_offset, %k.page_list.offset.choice.else ]
  %k.page_table.field = getelementptr i8, ptr %args, i64 88
  %k.page_table = load ptr, ptr %k.page_table.field, align 8
  %k.page_list = getelementptr i32, ptr %k.page_table, i64 %k.page_list.offset
  %v.page.field = getelementptr i8, ptr %args, i64 328
  %v.page = load i64, ptr %v.page.field, align 8
  %v.page.bytes = mul i64 %v.page, 4
  %v.token.field = getelementptr i8, ptr %args, i64 344
  %v.token = load i64, ptr %v.token.field, align 8
  %v.token.bytes = mul i64 %v.token, 4
  %v.head.field = getelementptr i8, ptr %args, i64 336
  %v.head = load i64, ptr %v.head.field, align 8
  %v.head.bytes = mul i64 %v.head, 4
  %v.head.offset = mul i64 %v.head.bytes, %kv_head
  %v.all.field = getelementptr i8, ptr %args, i64 24
  %v.all = load ptr, ptr %v.all.field, align 8
  %v.base = getelementptr i8, ptr %v.all, i64 %v.head.offset
  ; q of the row block, converted once; nothing attended to yet
  br label %q_row.head

q_row.head:
  %q_row = phi i64 [ 0, %k.page_list.offset.choice.end ], [ %q_row.next, %dim.1.done ]
  %q_row.more = icmp slt i64 %q_row, 2
  br i1 %q_row.more, label %q_row.body, label %q_row.done

q_row.body:
  %rows.before.1 = mul i64 %row_block, 2
  %group.row = add i64 %rows.before.1, %q_row
  %head.first = mul i64 %kv_head, 2
  %q_head = add i64 %head.first, %group.row
  %q.row.offset = mul i64 %q_row, 16
  %q.row = getelementptr double, ptr %q, i64 %q.row.offset
  %q.stride_batch.field = getelementptr i8, ptr %args, i64 256
  %q.stride_batch = load i64, ptr %q.stride_batch.field, align 8
  %q.batch = mul i64 %batch_index, %q.stride_batch
  %q.stride_query.field = getelementptr i8, ptr %args, i64 264
  %q.stride_query = load i64, ptr %q.stride_query.field, align 8
  %q.query = mul i64 %first_token, %q.stride_query
  %q.stride_head.field = getelementptr i8, ptr %args, i64 272
  %q.stride_head = load i64, ptr %q.stride_head.field, align 8
  %q.head = mul i64 %q_head, %q.stride_head
  %q.before = add i64 %q.batch, %q.query
  %q.offset = add i64 %q.before, %q.head
  %q.all = load ptr, ptr %args, align 8
  %q.bytes = mul i64 %q.offset, 4
  %q.from = getelementptr i8, ptr %q.all, i64 %q.bytes
  br label %dim.head

dim.head:
  %dim = phi i64 [ 0, %q_row.body ], [ %dim.next, %dim.body ]
  %dim.more = icmp slt i64 %dim, 16
  br i1 %dim.more, label %dim.body, label %dim.done

dim.body:
  %dim.bytes = mul i64 %dim, 4
  %q.at = getelementptr i8, ptr %q.from, i64 %dim.bytes
  %q.value = load <4 x float>, ptr %q.at, align 4
  %q.double = fpext <4 x float> %q.value to <4 x double>
  %q.row.at = getelementptr double, ptr %q.row, i64 %dim
  store <4 x double> %q.double, ptr %q.row.at, align 8
  %dim.next = add i64 %dim, 4
  br label %dim.head

dim.done:
  %m.at = getelementptr float, ptr %m, i64 %q_row
  store float 0xFFF0000000000000, ptr %m.at, align 4
  %l.at = getelementptr float, ptr %l, i64 %q_row
  store float 0.0, ptr %l.at, align 4
  %acc.row.offset = mul i64 %q_row, 16
  %acc.row = getelementptr float, ptr %acc, i64 %acc.row.offset
  br label %dim.1.head

dim.1.head:
  %dim.1 = phi i64 [ 0, %dim.done ], [ %dim.1.next, %dim.1.body ]
  %dim.1.more = icmp slt i64 %dim.1, 16
  br i1 %dim.1.more, label %dim.1.body, label %dim.1.done

dim.1.body:
  %acc.at = getelementptr float, ptr %acc.row, i64 %dim.1
  store <4 x float> splat (float 0.0), ptr %acc.at, align 4
  %dim.1.next = add i64 %dim.1, 4
  br label %dim.1.head

dim.1.done:
  %q_row.next = add i64 %q_row, 1
  br label %q_row.head

q_row.done:
  br label %tile.head

tile.head:
  %tile = phi i64 [ %piece.first, %q_row.done ], [ %tile.next, %panel.done ]
  %tile.more = icmp slt i64 %tile, %piece.end
  br i1 %tile.more, label %tile.body, label %tile.done

tile.body:
  %tile.first = udiv i64 %first_key, 32
  %tile.absolute = add i64 %tile.first, %tile
  %tile.begin = mul i64 %tile.absolute, 32
  %larger = icmp sgt i64 %tile.begin, %first_key
  %keys.begin = select i1 %larger, i64 %tile.begin, i64 %first_key
  %tile.end = add i64 %tile.begin, 32
  %smaller.1 = icmp slt i64 %tile.end, %end_key
  %keys.end = select i1 %smaller.1, i64 %tile.end, i64 %end_key
  %keys = sub i64 %keys.end, %keys.begin
  ; addresses and scales of the block's keys
  br label %found.head

found.head:
  %found = phi i64 [ 0, %tile.body ], [ %found.next, %found.body ]
  %found.more = icmp slt i64 %found, %keys
  br i1 %found.more, label %found.body, label %found.done

found.body:
  %found.key = add i64 %keys.begin, %found
  %page.number = udiv i64 %found.key, 16
  %page.token = urem i64 %found.key, 16
  %k.page.id.at = getelementptr i32, ptr %k.page_list, i64 %page.number
  %k.page.id.i32 = load i32, ptr %k.page.id.at, align 4
  %k.page.id = sext i32 %k.page.id.i32 to i64
  %k.token.offset = mul i64 %page.token, %k.token.bytes
  %k.page.offset = mul i64 %k.page.id, %k.page.bytes
  %k.key.offset = add i64 %k.page.offset, %k.token.offset
  %k.key = getelementptr i8, ptr %k.base, i64 %k.key.offset
  %k.key.at = getelementptr ptr, ptr %k_at, i64 %found
  store ptr %k.key, ptr %k.key.at, align 8
  %v.token.offset = mul i64 %page.token, %v.token.bytes
  %v.page.offset = mul i64 %k.page.id, %v.page.bytes
  %v.key.offset = add i64 %v.page.offset, %v.token.offset
  %v.key = getelementptr i8, ptr %v.base, i64 %v.key.offset
  %v.key.at = getelementptr ptr, ptr %v_at, i64 %found
  store ptr %v.key, ptr %v.key.at, align 8
  %found.next = add i64 %found, 1
  br label %found.head

found.done:
  ; q.k of every row and key, several keys at a time; the last key stands in beyond it
  %key.last = sub i64 %keys, 1
  br label %key.head

key.head:
  %key = phi i64 [ 0, %found.done ], [ %key.next, %dim.2.done ]
  %key.more = icmp slt i64 %key, %keys
  br i1 %key.more, label %key.body, label %key.done

key.body:
  %smaller.2 = icmp slt i64 %key, %key.last
  %key.held_0 = select i1 %smaller.2, i64 %key, i64 %key.last
  %k.row_0.at = getelementptr ptr, ptr %k_at, i64 %key.held_0
  %k.row_0 = load ptr, ptr %k.row_0.at, align 8
  %key_1 = add i64 %key, 1
  %smaller.3 = icmp slt i64 %key_1, %key.last
  %key.held_1 = select i1 %smaller.3, i64 %key_1, i64 %key.last
  %k.row_1.at = getelementptr ptr, ptr %k_at, i64 %key.held_1
  %k.row_1 = load ptr, ptr %k.row_1.at, align 8
  %key_2 = add i64 %key, 2
  %smaller.4 = icmp slt i64 %key_2, %key.last
  %key.held_2 = select i1 %smaller.4, i64 %key_2, i64 %key.last
  %k.row_2.at = getelementptr ptr, ptr %k_at, i64 %key.held_2
  %k.row_2 = load ptr, ptr %k.row_2.at, align 8
  %key_3 = add i64 %key, 3
  %smaller.5 = icmp slt i64 %key_3, %key.last
  %key.held_3 = select i1 %smaller.5, i64 %key_3, i64 %key.last
  %k.row_3.at = getelementptr ptr, ptr %k_at, i64 %key.held_3
  %k.row_3 = load ptr, ptr %k.row_3.at, align 8
  br label %dim.2.head

dim.2.head:
  %dim.2 = phi i64 [ 0, %key.body ], [ %dim.2.next, %dim.2.body ]
  %dot = phi <4 x double> [ splat (double 0.0), %key.body ], [ %dot.next, %dim.2.body ]
  %dot.1 = phi <4 x double> [ splat (double 0.0), %key.body ], [ %dot.next.1, %dim.2.body ]
  %dot.2 = phi <4 x double> [ splat (double 0.0), %key.body ], [ %dot.next.2, %dim.2.body ]
  %dot.3 = phi <4 x double> [ splat (double 0.0), %key.body ], [ %dot.next.3, %dim.2.body ]
  %dot.4 = phi <4 x double> [ splat (double 0.0), %key.body ], [ %dot.next.4, %dim.2.body ]
  %dot.5 = phi <4 x double> [ splat (double 0.0), %key.body ], [ %dot.next.5, %dim.2.body ]
  %dot.6 = phi <4 x double> [ splat (double 0.0), %key.body ], [ %dot.next.6, %dim.2.body ]
  %dot.7 = phi <4 x double> [ splat (double 0.0), %key.body ], [ %dot.next.7, %dim.2.body ]
  %dim.2.more = icmp slt i64 %dim.2, 16
  br i1 %dim.2.more, label %dim.2.body, label %dim.2.done

dim.2.body:
  %dim.bytes.1 = mul i64 %dim.2, 4
  %k_0.at = getelementptr i8, ptr %k.row_0, i64 %dim.bytes.1
  %k_0 = load <4 x float>, ptr %k_0.at, align 16
  %k_0.double = fpext <4 x float> %k_0 to <4 x double>
  %k_1.at = getelementptr i8, ptr %k.row_1, i64 %dim.bytes.1
  %k_1 = load <4 x float>, ptr %k_1.at, align 16
  %k_1.double = fpext <4 x float> %k_1 to <4 x double>
  %k_2.at = getelementptr i8, ptr %k.row_2, i64 %dim.bytes.1
  %k_2 = load <4 x float>, ptr %k_2.at, align 16
  %k_2.double = fpext <4 x float> %k_2 to <4 x double>
  %k_3.at = getelementptr i8, ptr %k.row_3, i64 %dim.bytes.1
  %k_3 = load <4 x float>, ptr %k_3.at, align 16
  %k_3.double = fpext <4 x float> %k_3 to <4 x double>
  %q_0.at = getelementptr double, ptr %q, i64 %dim.2
  %q_0 = load <4 x double>, ptr %q_0.at, align 8
  %dot.next = call <4 x double> @llvm.fmuladd.v4f64(<4 x double> %q_0, <4 x double> %k_0.double, <4 x double> %dot)
  %dot.next.1 = call <4 x double> @llvm.fmuladd.v4f64(<4 x double> %q_0, <4 x double> %k_1.double, <4 x double> %dot.1)
  %dot.next.2 = call <4 x double> @llvm.fmuladd.v4f64(<4 x double> %q_0, <4 x double> %k_2.double, <4 x double> %dot.2)
  %dot.next.3 = call <4 x double> @llvm.fmuladd.v4f64(<4 x double> %q_0, <4 x double> %k_3.double, <4 x double> %dot.3)
  %q.row_1 = getelementptr double, ptr %q, i64 16
  %q_1.at = getelementptr double, ptr %q.row_1, i64 %dim.2
  %q_1 = load <4 x double>, ptr %q_1.at, align 8
  %dot.next.4 = call <4 x double> @llvm.fmuladd.v4f64(<4 x double> %q_1, <4 x double> %k_0.double, <4 x double> %dot.4)
  %dot.next.5 = call <4 x double> @llvm.fmuladd.v4f64(<4 x double> %q_1, <4 x double> %k_1.double, <4 x double> %dot.5)
  %dot.next.6 = call <4 x double> @llvm.fmuladd.v4f64(<4 x double> %q_1, <4 x double> %k_2.double, <4 x double> %dot.6)
  %dot.next.7 = call <4 x double> @llvm.fmuladd.v4f64(<4 x double> %q_1, <4 x double> %k_3.double, <4 x double> %dot.7)
  %dim.2.next = add i64 %dim.2, 4
  br label %dim.2.head

dim.2.done:
  %dots.upper = shufflevector <4 x double> %dot, <4 x double> %dot.1, <4 x i32> <i32 2, i32 3, i32 6, i32 7>
  %dots.lower = shufflevector <4 x double> %dot, <4 x double> %dot.1, <4 x i32> <i32 0, i32 1, i32 4, i32 5>
  %dots.folded = fadd <4 x double> %dots.lower, %dots.upper
  %dots.upper.1 = shufflevector <4 x double> %dot.2, <4 x double> %dot.3, <4 x i32> <i32 2, i32 3, i32 6, i32 7>
  %dots.lower.1 = shufflevector <4 x double> %dot.2, <4 x double> %dot.3, <4 x i32> <i32 0, i32 1, i32 4, i32 5>
  %dots.folded.1 = fadd <4 x double> %dots.lower.1, %dots.upper.1
  %dots.upper.2 = shufflevector <4 x double> %dots.folded, <4 x double> %dots.folded.1, <4 x i32> <i32 1, i32 5, i32 3, i32 7>
  %dots.lower.2 = shufflevector <4 x double> %dots.folded, <4 x double> %dots.folded.1, <4 x i32> <i32 0, i32 4, i32 2, i32 6>
  %dots.folded.2 = fadd <4 x double> %dots.lower.2, %dots.upper.2
  %dots = shufflevector <4 x double> %dots.folded.2, <4 x double> poison, <4 x i32> <i32 0, i32 2, i32 1, i32 3>
  %scores.key = getelementptr double, ptr %scores, i64 %key
  store <4 x double> %dots, ptr %scores.key, align 8
  %dots.upper.3 = shufflevector <4 x double> %dot.4, <4 x double> %dot.5, <4 x i32> <i32 2, i32 3, i32 6, i32 7>
  %dots.lower.3 = shufflevector <4 x double> %dot.4, <4 x double> %dot.5, <4 x i32> <i32 0, i32 1, i32 4, i32 5>
  %dots.folded.3 = fadd <4 x double> %dots.lower.3, %dots.upper.3
  %dots.upper.4 = shufflevector <4 x double> %dot.6, <4 x double> %dot.7, <4 x i32> <i32 2, i32 3, i32 6, i32 7>
  %dots.lower.4 = shufflevector <4 x double> %dot.6, <4 x double> %dot.7, <4 x i32> <i32 0, i32 1, i32 4, i32 5>
  %dots.folded.4 = fadd <4 x double> %dots.lower.4, %dots.upper.4
  %dots.upper.5 = shufflevector <4 x double> %dots.folded.3, <4 x double> %dots.folded.4, <4 x i32> <i32 1, i32 5, i32 3, i32 7>
  %dots.lower.5 = shufflevector <4 x double> %dots.folded.3, <4 x double> %dots.folded.4, <4 x i32> <i32 0, i32 4, i32 2, i32 6>
  %dots.folded.5 = fadd <4 x double> %dots.lower.5, %dots.upper.5
  %dots.1 = shufflevector <4 x double> %dots.folded.5, <4 x double> poison, <4 x i32> <i32 0, i32 2, i32 1, i32 3>
  %scores.row_1 = getelementptr double, ptr %scores, i64 32
  %scores.key.1 = getelementptr double, ptr %scores.row_1, i64 %key
  store <4 x double> %dots.1, ptr %scores.key.1, align 8
  %key.next = add i64 %key, 4
  br label %key.head

key.done:
  ; online softmax: weights of the block, m and l of every row
  br label %row.head

row.head:
  %row = phi i64 [ 0, %key.done ], [ %row.next, %weighed.done ]
  %row.more = icmp slt i64 %row, 2
  br i1 %row.more, label %row.body, label %row.done

row.body:
  %scores.row.offset = mul i64 %row, 32
  %scores.row = getelementptr double, ptr %scores, i64 %scores.row.offset
  %weights.row.offset = mul i64 %row, 32
  %weights.row = getelementptr float, ptr %weights, i64 %weights.row.offset
  %m.at.1 = getelementptr float, ptr %m, i64 %row
  %l.at.1 = getelementptr float, ptr %l, i64 %row
  %rescale.at = getelementptr float, ptr %rescale, i64 %row
  %m.before = load float, ptr %m.at.1, align 4
  %rows.before.2 = mul i64 %row_block, 2
  %group.row.1 = add i64 %rows.before.2, %row
  %head.first.1 = mul i64 %kv_head, 2
  %q_head.1 = add i64 %head.first.1, %group.row.1
  %query_pos.first = sub i64 %total, %queries
  br label %scored.head

scored.head:
  %scored = phi i64 [ 0, %row.body ], [ %scored.next, %scored.body ]
  %score.largest = phi <4 x double> [ splat (double 0xFFF0000000000000), %row.body ], [ %score.largest.next, %scored.body ]
  %scored.more = icmp slt i64 %scored, %keys
  br i1 %scored.more, label %scored.body, label %scored.done

scored.body:
  %dots.at = getelementptr double, ptr %scores.row, i64 %scored
  %dots.2 = load <4 x double>, ptr %dots.at, align 8
  %scored.first = insertelement <4 x i64> poison, i64 %scored, i64 0
  %scored.splat = shufflevector <4 x i64> %scored.first, <4 x i64> poison, <4 x i32> zeroinitializer
  %key.in_block = add <4 x i64> %scored.splat, <i64 0, i64 1, i64 2, i64 3>
  %product = fmul <4 x double> %dots.2, splat (double 0x3F81111111111111)
  %x.size = call <4 x double> @llvm.fabs.v4f64(<4 x double> %product)
  %smaller.6 = fcmp olt <4 x double> %x.size, splat (double 20.0)
  %x.clamped = select <4 x i1> %smaller.6, <4 x double> %x.size, <4 x double> splat (double 20.0)
  %x.twice = fadd <4 x double> %x.clamped, %x.clamped
  %exponent.log2 = fmul <4 x double> %x.twice, splat (double 0x3FF71547652B82FE)
  %rounding = fadd <4 x double> %exponent.log2, splat (double 0x4338000000000000)
  %whole.bits = bitcast <4 x double> %rounding to <4 x i64>
  %whole = fsub <4 x double> %rounding, splat (double 0x4338000000000000)
  %whole.negated = fneg <4 x double> %whole
  %rest = call <4 x double> @llvm.fmuladd.v4f64(<4 x double> %whole.negated, <4 x double> splat (double 0x3FE62E42FEF00000), <4 x double> %x.twice)
  %rest.1 = call <4 x double> @llvm.fmuladd.v4f64(<4 x double> %whole.negated, <4 x double> splat (double 0x3DD473DE6AF278ED), <4 x double> %rest)
  %exponent = shl <4 x i64> %whole.bits, splat (i64 52)
  %mantissa.bits = bitcast <4 x double> splat (double 1.0) to <4 x i64>
  %power.bits = add <4 x i64> %mantissa.bits, %exponent
  %power = bitcast <4 x i64> %power.bits to <4 x double>
  %power.less = fsub <4 x double> %power, splat (double 1.0)
  %rest.square = fmul <4 x double> %rest.1, %rest.1
  %poly = call <4 x double> @llvm.fmuladd.v4f64(<4 x double> splat (double 0x3DE6124613A86D09), <4 x double> %rest.1, <4 x double> splat (double 0x3E21EED8EFF8D898))
  %poly.1 = call <4 x double> @llvm.fmuladd.v4f64(<4 x double> %poly, <4 x double> %rest.1, <4 x double> splat (double 0x3E5AE64567F544E4))
  %poly.2 = call <4 x double> @llvm.fmuladd.v4f64(<4 x double> %poly.1, <4 x double> %rest.1, <4 x double> splat (double 0x3E927E4FB7789F5C))
  %poly.3 = call <4 x double> @llvm.fmuladd.v4f64(<4 x double> %poly.2, <4 x double> %rest.1, <4 x double> splat (double 0x3EC71DE3A556C734))
  %poly.4 = call <4 x double> @llvm.fmuladd.v4f64(<4 x double> %poly.3, <4 x double> %rest.1, <4 x double> splat (double 0x3EFA01A01A01A01A))
  %poly.5 = call <4 x double> @llvm.fmuladd.v4f64(<4 x double> %poly.4, <4 x double> %rest.1, <4 x double> splat (double 0x3F2A01A01A01A01A))
  %poly.6 = call <4 x double> @llvm.fmuladd.v4f64(<4 x double> %poly.5, <4 x double> %rest.1, <4 x double> splat (double 0x3F56C16C16C16C17))
  %poly.7 = call <4 x double> @llvm.fmuladd.v4f64(<4 x double> %poly.6, <4 x double> %rest.1, <4 x double> splat (double 0x3F81111111111111))
  %poly.8 = call <4 x double> @llvm.fmuladd.v4f64(<4 x double> %poly.7, <4 x double> %rest.1, <4 x double> splat (double 0x3FA5555555555555))
  %poly.9 = call <4 x double> @llvm.fmuladd.v4f64(<4 x double> %poly.8, <4 x double> %rest.1, <4 x double> splat (double 0x3FC5555555555555))
  %poly.10 = call <4 x double> @llvm.fmuladd.v4f64(<4 x double> %poly.9, <4 x double> %rest.1, <4 x double> splat (double 0x3FE0000000000000))
  %power.less_one = call <4 x double> @llvm.fmuladd.v4f64(<4 x double> %poly.10, <4 x double> %rest.square, <4 x double> %rest.1)
  %e = call <4 x double> @llvm.fmuladd.v4f64(<4 x double> %power, <4 x double> %power.less_one, <4 x double> %power.less)
  %e.more = fadd <4 x double> %e, splat (double 2.0)
  %tanh.size = fdiv <4 x double> %e, %e.more
  %tanh = call <4 x double> @llvm.copysign.v4f64(<4 x double> %tanh.size, <4 x double> %product)
  %product.1 = fmul <4 x double> %tanh, splat (double 0x4045A3F2EED8CACE)
  %score.single = fptrunc <4 x double> %product.1 to <4 x float>
  %score.rounded = fpext <4 x float> %score.single to <4 x double>
  %score.size = call <4 x double> @llvm.fabs.v4f64(<4 x double> %product.1)
  %score.is_small = fcmp olt <4 x double> %score.size, splat (double 0x4130000000000000)
  %score.settled = select <4 x i1> %score.is_small, <4 x double> %product.1, <4 x double> %score.rounded
  %keys.first = insertelement <4 x i64> poison, i64 %keys, i64 0
  %keys.splat = shufflevector <4 x i64> %keys.first, <4 x i64> poison, <4 x i32> zeroinitializer
  %in_block = icmp slt <4 x i64> %key.in_block, %keys.splat
  %score.masked = select <4 x i1> %in_block, <4 x double> %score.settled, <4 x double> splat (double 0xFFF0000000000000)
  store <4 x double> %score.masked, ptr %dots.at, align 8
  %larger.1 = fcmp ogt <4 x double> %score.masked, %score.largest
  %score.largest.next = select <4 x i1> %larger.1, <4 x double> %score.masked, <4 x double> %score.largest
  %scored.next = add i64 %scored, 4
  br label %scored.head

scored.done:
  %block.largest.upper = shufflevector <4 x double> %score.largest, <4 x double> poison, <4 x i32> <i32 2, i32 3, i32 poison, i32 poison>
  %larger.2 = fcmp ogt <4 x double> %score.largest, %block.largest.upper
  %block.largest.lanes = select <4 x i1> %larger.2, <4 x double> %score.largest, <4 x double> %block.largest.upper
  %block.largest.upper.1 = shufflevector <4 x double> %block.largest.lanes, <4 x double> poison, <4 x i32> <i32 1, i32 poison, i32 poison, i32 poison>
  %larger.3 = fcmp ogt <4 x double> %block.largest.lanes, %block.largest.upper.1
  %block.largest.lanes.1 = select <4 x i1> %larger.3, <4 x double> %block.largest.lanes, <4 x double> %block.largest.upper.1
  %block.largest = extractelement <4 x double> %block.largest.lanes.1, i64 0
  %block.largest.single = fptrunc double %block.largest to float
  %larger.4 = fcmp ogt float %block.largest.single, %m.before
  %m.next = select i1 %larger.4, float %block.largest.single, float %m.before
  %m.is_empty = fcmp oeq float %m.next, 0xFFF0000000000000
  %m.base = select i1 %m.is_empty, float 0.0, float %m.next
  %m.real = fpext float %m.base to double
  br label %weighed.head

weighed.head:
  %weighed = phi i64 [ 0, %scored.done ], [ %weighed.next, %weighed.body ]
  %weight.sum = phi <4 x float> [ splat (float 0.0), %scored.done ], [ %weight.sum.next, %weighed.body ]
  %weighed.more = icmp slt i64 %weighed, %keys
  br i1 %weighed.more, label %weighed.body, label %weighed.done

weighed.body:
  %scores.at = getelementptr double, ptr %scores.row, i64 %weighed
  %score = load <4 x double>, ptr %scores.at, align 8
  %m.real.first = insertelement <4 x double> poison, double %m.real, i64 0
  %m.real.splat = shufflevector <4 x double> %m.real.first, <4 x double> poison, <4 x i32> zeroinitializer
  %score.less = fsub <4 x double> %score, %m.real.splat
  %exponent.1 = fptrunc <4 x double> %score.less to <4 x float>
  %larger.5 = fcmp ogt <4 x float> %exponent.1, splat (float -126.0)
  %exponent.clamped = select <4 x i1> %larger.5, <4 x float> %exponent.1, <4 x float> splat (float -126.0)
  %rounding.1 = fadd <4 x float> %exponent.clamped, splat (float 0x4168000000000000)
  %whole.bits.1 = bitcast <4 x float> %rounding.1 to <4 x i32>
  %whole.1 = fsub <4 x float> %rounding.1, splat (float 0x4168000000000000)
  %fraction = fsub <4 x float> %exponent.clamped, %whole.1
  %poly.11 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> splat (float 0x3F244138A0000000), <4 x float> %fraction, <4 x float> splat (float 0x3F55F08900000000))
  %poly.12 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %poly.11, <4 x float> %fraction, <4 x float> splat (float 0x3F83B2A540000000))
  %poly.13 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %poly.12, <4 x float> %fraction, <4 x float> splat (float 0x3FAC6AF6C0000000))
  %poly.14 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %poly.13, <4 x float> %fraction, <4 x float> splat (float 0x3FCEBFBE00000000))
  %poly.15 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %poly.14, <4 x float> %fraction, <4 x float> splat (float 0x3FE62E4300000000))
  %mantissa = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %poly.15, <4 x float> %fraction, <4 x float> splat (float 1.0))
  %exponent.2 = shl <4 x i32> %whole.bits.1, splat (i32 23)
  %mantissa.bits.1 = bitcast <4 x float> %mantissa to <4 x i32>
  %power.bits.1 = add <4 x i32> %mantissa.bits.1, %exponent.2
  %power.1 = bitcast <4 x i32> %power.bits.1 to <4 x float>
  %underflows = fcmp olt <4 x float> %exponent.1, splat (float -126.0)
  %power.or.zero = select <4 x i1> %underflows, <4 x float> splat (float 0.0), <4 x float> %power.1
  %weights.at = getelementptr float, ptr %weights.row, i64 %weighed
  store <4 x float> %power.or.zero, ptr %weights.at, align 4
  %weight.sum.next = fadd <4 x float> %weight.sum, %power.or.zero
  %weighed.next = add i64 %weighed, 4
  br label %weighed.head

weighed.done:
  %block.sum = call reassoc float @llvm.vector.reduce.fadd.v4f32(float -0.0, <4 x float> %weight.sum)
  %m.less = fsub float %m.before, %m.base
  %larger.6 = fcmp ogt float %m.less, -126.0
  %exponent.clamped.1 = select i1 %larger.6, float %m.less, float -126.0
  %rounding.2 = fadd float %exponent.clamped.1, 0x4168000000000000
  %whole.bits.2 = bitcast float %rounding.2 to i32
  %whole.2 = fsub float %rounding.2, 0x4168000000000000
  %fraction.1 = fsub float %exponent.clamped.1, %whole.2
  %poly.16 = call float @llvm.fmuladd.f32(float 0x3F244138A0000000, float %fraction.1, float 0x3F55F08900000000)
  %poly.17 = call float @llvm.fmuladd.f32(float %poly.16, float %fraction.1, float 0x3F83B2A540000000)
  %poly.18 = call float @llvm.fmuladd.f32(float %poly.17, float %fraction.1, float 0x3FAC6AF6C0000000)
  %poly.19 = call float @llvm.fmuladd.f32(float %poly.18, float %fraction.1, float 0x3FCEBFBE00000000)
  %poly.20 = call float @llvm.fmuladd.f32(float %poly.19, float %fraction.1, float 0x3FE62E4300000000)
  %mantissa.1 = call float @llvm.fmuladd.f32(float %poly.20, float %fraction.1, float 1.0)
  %exponent.3 = shl i32 %whole.bits.2, 23
  %mantissa.bits.2 = bitcast float %mantissa.1 to i32
  %power.bits.2 = add i32 %mantissa.bits.2, %exponent.3
  %power.2 = bitcast i32 %power.bits.2 to float
  %underflows.1 = fcmp olt float %m.less, -126.0
  %power.or.zero.1 = select i1 %underflows.1, float 0.0, float %power.2
  %l.before = load float, ptr %l.at.1, align 4
  store float %m.next, ptr %m.at.1, align 4
  store float %power.or.zero.1, ptr %rescale.at, align 4
  %l.next = call float @llvm.fmuladd.f32(float %l.before, float %power.or.zero.1, float %block.sum)
  store float %l.next, ptr %l.at.1, align 4
  %row.next = add i64 %row, 1
  br label %row.head

row.done:
  ; acc = acc * rescale + weights * V, a panel of dims at a time
  br label %panel.head

panel.head:
  %panel = phi i64 [ 0, %row.done ], [ %panel.next, %v_key.done ]
  %panel.more = icmp slt i64 %panel, 16
  br i1 %panel.more, label %panel.body, label %panel.done

panel.body:
  %acc.panel_0 = getelementptr float, ptr %acc, i64 %panel
  %rescale_0 = load float, ptr %rescale, align 4
  %rescale_0.first = insertelement <4 x float> poison, float %rescale_0, i64 0
  %rescale_0.splat = shufflevector <4 x float> %rescale_0.first, <4 x float> poison, <4 x i32> zeroinitializer
  %acc.before = load <4 x float>, ptr %acc.panel_0, align 4
  %acc.rescaled = fmul <4 x float> %acc.before, %rescale_0.splat
  %acc.at.1 = getelementptr float, ptr %acc.panel_0, i64 4
  %acc.before.1 = load <4 x float>, ptr %acc.at.1, align 4
  %acc.rescaled.1 = fmul <4 x float> %acc.before.1, %rescale_0.splat
  %acc.at.2 = getelementptr float, ptr %acc.panel_0, i64 8
  %acc.before.2 = load <4 x float>, ptr %acc.at.2, align 4
  %acc.rescaled.2 = fmul <4 x float> %acc.before.2, %rescale_0.splat
  %acc.at.3 = getelementptr float, ptr %acc.panel_0, i64 12
  %acc.before.3 = load <4 x float>, ptr %acc.at.3, align 4
  %acc.rescaled.3 = fmul <4 x float> %acc.before.3, %rescale_0.splat
  %acc.row_1 = getelementptr float, ptr %acc, i64 16
  %acc.panel_1 = getelementptr float, ptr %acc.row_1, i64 %panel
  %rescale.at.1 = getelementptr float, ptr %rescale, i64 1
  %rescale_1 = load float, ptr %rescale.at.1, align 4
  %rescale_1.first = insertelement <4 x float> poison, float %rescale_1, i64 0
  %rescale_1.splat = shufflevector <4 x float> %rescale_1.first, <4 x float> poison, <4 x i32> zeroinitializer
  %acc.before.4 = load <4 x float>, ptr %acc.panel_1, align 4
  %acc.rescaled.4 = fmul <4 x float> %acc.before.4, %rescale_1.splat
  %acc.at.4 = getelementptr float, ptr %acc.panel_1, i64 4
  %acc.before.5 = load <4 x float>, ptr %acc.at.4, align 4
  %acc.rescaled.5 = fmul <4 x float> %acc.before.5, %rescale_1.splat
  %acc.at.5 = getelementptr float, ptr %acc.panel_1, i64 8
  %acc.before.6 = load <4 x float>, ptr %acc.at.5, align 4
  %acc.rescaled.6 = fmul <4 x float> %acc.before.6, %rescale_1.splat
  %acc.at.6 = getelementptr float, ptr %acc.panel_1, i64 12
  %acc.before.7 = load <4 x float>, ptr %acc.at.6, align 4
  %acc.rescaled.7 = fmul <4 x float> %acc.before.7, %rescale_1.splat
  %panel.bytes = mul i64 %panel, 4
  br label %v_key.head

v_key.head:
  %v_key = phi i64 [ 0, %panel.body ], [ %v_key.next, %v_key.body ]
  %acc.value = phi <4 x float> [ %acc.rescaled, %panel.body ], [ %acc.next, %v_key.body ]
  %acc.value.1 = phi <4 x float> [ %acc.rescaled.1, %panel.body ], [ %acc.next.1, %v_key.body ]
  %acc.value.2 = phi <4 x float> [ %acc.rescaled.2, %panel.body ], [ %acc.next.2, %v_key.body ]
  %acc.value.3 = phi <4 x float> [ %acc.rescaled.3, %panel.body ], [ %acc.next.3, %v_key.body ]
  %acc.value.4 = phi <4 x float> [ %acc.rescaled.4, %panel.body ], [ %acc.next.4, %v_key.body ]
  %acc.value.5 = phi <4 x float> [ %acc.rescaled.5, %panel.body ], [ %acc.next.5, %v_key.body ]
  %acc.value.6 = phi <4 x float> [ %acc.rescaled.6, %panel.body ], [ %acc.next.6, %v_key.body ]
  %acc.value.7 = phi <4 x float> [ %acc.rescaled.7, %panel.body ], [ %acc.next.7, %v_key.body ]
  %v_key.more = icmp slt i64 %v_key, %keys
  br i1 %v_key.more, label %v_key.body, label %v_key.done

v_key.body:
  %v.row.at = getelementptr ptr, ptr %v_at, i64 %v_key
  %v.row = load ptr, ptr %v.row.at, align 8
  %v.panel = getelementptr i8, ptr %v.row, i64 %panel.bytes
  %v_0 = load <4 x float>, ptr %v.panel, align 16
  %v_1.at = getelementptr i8, ptr %v.panel, i64 16
  %v_1 = load <4 x float>, ptr %v_1.at, align 16
  %v_2.at = getelementptr i8, ptr %v.panel, i64 32
  %v_2 = load <4 x float>, ptr %v_2.at, align 16
  %v_3.at = getelementptr i8, ptr %v.panel, i64 48
  %v_3 = load <4 x float>, ptr %v_3.at, align 16
  %weight.at = getelementptr float, ptr %weights, i64 %v_key
  %weight_0 = load float, ptr %weight.at, align 4
  %weight_0.first = insertelement <4 x float> poison, float %weight_0, i64 0
  %weight_0.splat = shufflevector <4 x float> %weight_0.first, <4 x float> poison, <4 x i32> zeroinitializer
  %acc.next = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %weight_0.splat, <4 x float> %v_0, <4 x float> %acc.value)
  %acc.next.1 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %weight_0.splat, <4 x float> %v_1, <4 x float> %acc.value.1)
  %acc.next.2 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %weight_0.splat, <4 x float> %v_2, <4 x float> %acc.value.2)
  %acc.next.3 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %weight_0.splat, <4 x float> %v_3, <4 x float> %acc.value.3)
  %weights.row_1 = getelementptr float, ptr %weights, i64 32
  %weight.at.1 = getelementptr float, ptr %weights.row_1, i64 %v_key
  %weight_1 = load float, ptr %weight.at.1, align 4
  %weight_1.first = insertelement <4 x float> poison, float %weight_1, i64 0
  %weight_1.splat = shufflevector <4 x float> %weight_1.first, <4 x float> poison, <4 x i32> zeroinitializer
  %acc.next.4 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %weight_1.splat, <4 x float> %v_0, <4 x float> %acc.value.4)
  %acc.next.5 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %weight_1.splat, <4 x float> %v_1, <4 x float> %acc.value.5)
  %acc.next.6 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %weight_1.splat, <4 x float> %v_2, <4 x float> %acc.value.6)
  %acc.next.7 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %weight_1.splat, <4 x float> %v_3, <4 x float> %acc.value.7)
  %v_key.next = add i64 %v_key, 1
  br label %v_key.head

v_key.done:
  store <4 x float> %acc.value, ptr %acc.panel_0, align 4
  store <4 x float> %acc.value.1, ptr %acc.at.1, align 4
  store <4 x float> %acc.value.2, ptr %acc.at.2, align 4
  store <4 x float> %acc.value.3, ptr %acc.at.3, align 4
  store <4 x float> %acc.value.4, ptr %acc.panel_1, align 4
  store <4 x float> %acc.value.5, ptr %acc.at.4, align 4
  store <4 x float> %acc.value.6, ptr %acc.at.5, align 4
  store <4 x float> %acc.value.7, ptr %acc.at.6, align 4
  %panel.next = add i64 %panel, 16
  br label %panel.head

panel.done:
  %tile.next = add i64 %tile, %piece.step
  br label %tile.head

tile.done:
  %is_alone = icmp eq i64 %pieces, 1
  br label %row.1.head

row.1.head:
  %row.1 = phi i64 [ 0, %tile.done ], [ %row.1.next, %write.end ]
  %row.1.more = icmp slt i64 %row.1, %valid_rows
  br i1 %row.1.more, label %row.1.body, label %row.1.done

row.1.body:
  %m.at.2 = getelementptr float, ptr %m, i64 %row.1
  %m.row = load float, ptr %m.at.2, align 4
  %l.at.2 = getelementptr float, ptr %l, i64 %row.1
  %l.row = load float, ptr %l.at.2, align 4
  %o.offset = mul i64 %row.1, 16
  %o = getelementptr float, ptr %acc, i64 %o.offset
  %row.is_empty = fcmp oeq float %l.row, 0.0
  %divisor = select i1 %row.is_empty, float 1.0, float %l.row
  br label %dim.3.head

dim.3.head:
  %dim.3 = phi i64 [ 0, %row.1.body ], [ %dim.3.next, %dim.3.body ]
  %dim.3.more = icmp slt i64 %dim.3, 16
  br i1 %dim.3.more, label %dim.3.body, label %dim.3.done

dim.3.body:
  %o.at = getelementptr float, ptr %o, i64 %dim.3
  %acc.value.8 = load <4 x float>, ptr %o.at, align 4
  %divisor.first = insertelement <4 x float> poison, float %divisor, i64 0
  %divisor.splat = shufflevector <4 x float> %divisor.first, <4 x float> poison, <4 x i32> zeroinitializer
  %o.value = fdiv <4 x float> %acc.value.8, %divisor.splat
  store <4 x float> %o.value, ptr %o.at, align 4
  %dim.3.next = add i64 %dim.3, 4
  br label %dim.3.head

dim.3.done:
  br i1 %is_alone, label %write.then, label %write.else

write.then:
  ; the finished row, to out and lse
  %rows.before.3 = mul i64 %row_block, 2
  %group.row.2 = add i64 %rows.before.3, %row.1
  %head.first.2 = mul i64 %kv_head, 2
  %q_head.2 = add i64 %head.first.2, %group.row.2
  %out.stride_batch.field = getelementptr i8, ptr %args, i64 400
  %out.stride_batch = load i64, ptr %out.stride_batch.field, align 8
  %out.batch = mul i64 %batch_index, %out.stride_batch
  %out.stride_query.field = getelementptr i8, ptr %args, i64 408
  %out.stride_query = load i64, ptr %out.stride_query.field, align 8
  %out.query = mul i64 %first_token, %out.stride_query
  %out.stride_head.field = getelementptr i8, ptr %args, i64 416
  %out.stride_head = load i64, ptr %out.stride_head.field, align 8
  %out.head = mul i64 %q_head.2, %out.stride_head
  %out.before = add i64 %out.batch, %out.query
  %out.offset = add i64 %out.before, %out.head
  %out.field = getelementptr i8, ptr %args, i64 32
  %out = load ptr, ptr %out.field, align 8
  %out.bytes = mul i64 %out.offset, 4
  %out.row = getelementptr i8, ptr %out, i64 %out.bytes
  br label %dim.4.head

dim.4.head:
  %dim.4 = phi i64 [ 0, %write.then ], [ %dim.4.next, %dim.4.body ]
  %dim.4.more = icmp slt i64 %dim.4, 16
  br i1 %dim.4.more, label %dim.4.body, label %dim.4.done

dim.4.body:
  %o.at.1 = getelementptr float, ptr %o, i64 %dim.4
  %o.value.1 = load <4 x float>, ptr %o.at.1, align 4
  %dim.bytes.2 = mul i64 %dim.4, 4
  %out.at = getelementptr i8, ptr %out.row, i64 %dim.bytes.2
  store <4 x float> %o.value.1, ptr %out.at, align 4
  %dim.4.next = add i64 %dim.4, 4
  br label %dim.4.head

dim.4.done:
  %lse.stride_batch.field = getelementptr i8, ptr %args, i64 424
  %lse.stride_batch = load i64, ptr %lse.stride_batch.field, align 8
  %lse.batch = mul i64 %batch_index, %lse.stride_batch
  %lse.stride_query.field = getelementptr i8, ptr %args, i64 432
  %lse.stride_query = load i64, ptr %lse.stride_query.field, align 8
  %lse.query = mul i64 %first_token, %lse.stride_query
  %lse.stride_head.field = getelementptr i8, ptr %args, i64 440
  %lse.stride_head = load i64, ptr %lse.stride_head.field, align 8
  %lse.head = mul i64 %q_head.2, %lse.stride_head
  %lse.before = add i64 %lse.batch, %lse.query
  %lse.offset = add i64 %lse.before, %lse.head
  %tiny = fcmp olt float %l.row, 0x3810000000000000
  %lifted = fmul float %l.row, 0x4160000000000000
  %normal = select i1 %tiny, float %lifted, float %l.row
  %lift = select i1 %tiny, i32 23, i32 0
  %bits = bitcast float %normal to i32
  %from.root = sub i32 %bits, 1060439283
  %powers = ashr i32 %from.root, 23
  %powers.bits = shl i32 %powers, 23
  %m.bits = sub i32 %bits, %powers.bits
  %m.1 = bitcast i32 %m.bits to float
  %m.more = fadd float %m.1, 1.0
  %m.less.1 = fsub float %m.1, 1.0
  %s = fdiv float %m.less.1, %m.more
  %s.square = fmul float %s, %s
  %s.twice = fadd float %s, %s
  %poly.21 = call float @llvm.fmuladd.f32(float 0x3FC2EF5160000000, float %s.square, float 0x3FC997BDC0000000)
  %poly.22 = call float @llvm.fmuladd.f32(float %poly.21, float %s.square, float 0x3FD55555C0000000)
  %tail = fmul float %poly.22, %s.square
  %tail.1 = fmul float %tail, %s.twice
  %exponent.4 = sub i32 %powers, %lift
  %exponent.value = sitofp i32 %exponent.4 to float
  %log.m = fadd float %s.twice, %tail.1
  %log2 = call float @llvm.fmuladd.f32(float %log.m, float 0x3FF7154760000000, float %exponent.value)
  %is.inf = fcmp oeq float %l.row, 0x7FF0000000000000
  %log.or.inf = select i1 %is.inf, float 0x7FF0000000000000, float %log2
  %is.zero = fcmp oeq float %l.row, 0.0
  %log.or.minus.inf = select i1 %is.zero, float 0xFFF0000000000000, float %log.or.inf
  %is.valid = fcmp oge float %l.row, 0.0
  %log.checked = select i1 %is.valid, float %log.or.minus.inf, float 0x7FF8000000000000
  %log2_sum = fadd float %m.row, %log.checked
  %lse.natural = fmul float %log2_sum, 0x3FE62E4300000000
  %lse.field = getelementptr i8, ptr %args, i64 40
  %lse = load ptr, ptr %lse.field, align 8
  %lse.at = getelementptr float, ptr %lse, i64 %lse.offset
  store float %lse.natural, ptr %lse.at, align 4
  br label %write.end

write.else:
  ; the row's partial, to scratch
  %partials.field = getelementptr i8, ptr %args, i64 160
  %partials = load ptr, ptr %partials.field, align 8
  %partial_o_offset.field = getelementptr i8, ptr %args, i64 512
  %partial_o_offset = load i64, ptr %partial_o_offset.field, align 8
  %slot.rows = mul i64 %slot, 2
  %partial.row = add i64 %slot.rows, %row.1
  %o.offset.1 = mul i64 %partial.row, 16
  %o.from_start = add i64 %partial_o_offset, %o.offset.1
  %statistics = getelementptr float, ptr %partials, i64 %partial.row
  %partial.o = getelementptr float, ptr %partials, i64 %o.from_start
  %tiny.1 = fcmp olt float %l.row, 0x3810000000000000
  %lifted.1 = fmul float %l.row, 0x4160000000000000
  %normal.1 = select i1 %tiny.1, float %lifted.1, float %l.row
  %lift.1 = select i1 %tiny.1, i32 23, i32 0
  %bits.1 = bitcast float %normal.1 to i32
  %from.root.1 = sub i32 %bits.1, 1060439283
  %powers.1 = ashr i32 %from.root.1, 23
  %powers.bits.1 = shl i32 %powers.1, 23
  %m.bits.1 = sub i32 %bits.1, %powers.bits.1
  %m.2 = bitcast i32 %m.bits.1 to float
  %m.more.1 = fadd float %m.2, 1.0
  %m.less.2 = fsub float %m.2, 1.0
  %s.1 = fdiv float %m.less.2, %m.more.1
  %s.square.1 = fmul float %s.1, %s.1
  %s.twice.1 = fadd float %s.1, %s.1
  %poly.23 = call float @llvm.fmuladd.f32(float 0x3FC2EF5160000000, float %s.square.1, float 0x3FC997BDC0000000)
  %poly.24 = call float @llvm.fmuladd.f32(float %poly.23, float %s.square.1, float 0x3FD55555C0000000)
  %tail.2 = fmul float %poly.24, %s.square.1
  %tail.3 = fmul float %tail.2, %s.twice.1
  %exponent.5 = sub i32 %powers.1, %lift.1
  %exponent.value.1 = sitofp i32 %exponent.5 to float
  %log.m.1 = fadd float %s.twice.1, %tail.3
  %log2.1 = call float @llvm.fmuladd.f32(float %log.m.1, float 0x3FF7154760000000, float %exponent.value.1)
  %is.inf.1 = fcmp oeq float %l.row, 0x7FF0000000000000
  %log.or.inf.1 = select i1 %is.inf.1, float 0x7FF0000000000000, float %log2.1
  %is.zero.1 = fcmp oeq float %l.row, 0.0
  %log.or.minus.inf.1 = select i1 %is.zero.1, float 0xFFF0000000000000, float %log.or.inf.1
  %is.valid.1 = fcmp oge float %l.row, 0.0
  %log.checked.1 = select i1 %is.valid.1, float %log.or.minus.inf.1, float 0x7FF8000000000000
  %log2_sum.1 = fadd float %m.row, %log.checked.1
  store float %log2_sum.1, ptr %statistics, align 4
  br label %dim.5.head

dim.5.head:
  %dim.5 = phi i64 [ 0, %write.else ], [ %dim.5.next, %dim.5.body ]
  %dim.5.more = icmp slt i64 %dim.5, 16
  br i1 %dim.5.more, label %dim.5.body, label %dim.5.done

dim.5.body:
  %o.at.2 = getelementptr float, ptr %o, i64 %dim.5
  %o.value.2 = load <4 x float>, ptr %o.at.2, align 4
  %partial.o.at = getelementptr float, ptr %partial.o, i64 %dim.5
  store <4 x float> %o.value.2, ptr %partial.o.at, align 4
  %dim.5.next = add i64 %dim.5, 4
  br label %dim.5.head

dim.5.done:
  br label %write.end

write.end:
  %row.1.next = add i64 %row.1, 1
  br label %row.1.head

row.1.done:
  %is_shared = icmp sgt i64 %pieces, 1
  br i1 %is_shared, label %shared.then, label %shared.end

shared.then:
  ; arrive; the last of the sequence's pieces joins them
  %arrivals.field = getelementptr i8, ptr %args, i64 168
  %arrivals = load ptr, ptr %arrivals.field, align 8
  %arrival = getelementptr i32, ptr %arrivals, i64 %sequence
  %arrived.before = atomicrmw add ptr %arrival, i32 1 acq_rel, align 4
  %arrived = zext i32 %arrived.before to i64
  %arrived.1 = add i64 %arrived, 1
  %is_last = icmp eq i64 %arrived.1, %pieces
  br i1 %is_last, label %last.then, label %last.end

last.then:
  store atomic i32 0, ptr %arrival release, align 4
  call void @join_sequence(ptr %args, i64 %batch_row, i64 %kv_head, i64 %row_block, i64 %pieces, i64 %first_unit, i64 %total_units)
  br label %last.end

last.end:
  br label %shared.end

shared.end:
  br label %attend.end

attend.end:
  ret void
}

define internal void @join_sequence(ptr noalias readonly %args, i64 %batch_row, i64 %kv_head, i64 %row_block, i64 %pieces, i64 %first_unit, i64 %total_units) #0 {
entry:
  %o = alloca [16 x float], align 64
  %batch_row.found = alloca [8 x i64], align 8
  %largest.kept = alloca [1 x float], align 4
  %total.kept = alloca [1 x float], align 4
  %join.kept = alloca [1 x float], align 4
  call void @find_row(ptr %args, i64 %batch_row, ptr %batch_row.found)
  %queries = load i64, ptr %batch_row.found, align 8
  %first_token.at = getelementptr i64, ptr %batch_row.found, i64 1
  %first_token = load i64, ptr %first_token.at, align 8
  %batch_index.at = getelementptr i64, ptr %batch_row.found, i64 2
  %batch_index = load i64, ptr %batch_index.at, align 8
  %total.at = getelementptr i64, ptr %batch_row.found, i64 3
  %total = load i64, ptr %total.at, align 8
  %kv_len.at = getelementptr i64, ptr %batch_row.found, i64 4
  %kv_len = load i64, ptr %kv_len.at, align 8
  %first_key.at = getelementptr i64, ptr %batch_row.found, i64 5
  %first_key = load i64, ptr %first_key.at, align 8
  %end_key.at = getelementptr i64, ptr %batch_row.found, i64 6
  %end_key = load i64, ptr %end_key.at, align 8
  %tiles.at = getelementptr i64, ptr %batch_row.found, i64 7
  %tiles = load i64, ptr %tiles.at, align 8
  %query_rows = mul i64 %queries, 2
  %rows.before = mul i64 %row_block, 2
  %rows.left = sub i64 %query_rows, %rows.before
  %smaller = icmp slt i64 %rows.left, 2
  %valid_rows = select i1 %smaller, i64 %rows.left, i64 2
  br label %row.head

row.head:
  %row = phi i64 [ 0, %entry ], [ %row.next, %dim.2.done ]
  %row.more = icmp slt i64 %row, %valid_rows
  br i1 %row.more, label %row.body, label %row.done

row.body:
  ; the largest exponent, then the sum of all weights
  store float 0xFFF0000000000000, ptr %largest.kept, align 4
  br label %largest.head

largest.head:
  %largest = phi i64 [ 0, %row.body ], [ %largest.next.1, %largest.partial.end ]
  %largest.more = icmp slt i64 %largest, %pieces
  br i1 %largest.more, label %largest.body, label %largest.done

largest.body:
  %blocks.i32.field = getelementptr i8, ptr %args, i64 568
  %blocks.i32 = load i32, ptr %blocks.i32.field, align 4
  %blocks = sext i32 %blocks.i32 to i64
  %smaller.1 = icmp slt i64 %blocks, %total_units
  %blocks.used = select i1 %smaller.1, i64 %blocks, i64 %total_units
  %unit.past = add i64 %first_unit, 1
  %unit.share = mul i64 %unit.past, %blocks.used
  %unit.share.last = sub i64 %unit.share, 1
  %unit.block = udiv i64 %unit.share.last, %total_units
  %piece.block = add i64 %unit.block, %largest
  %block.share = mul i64 %piece.block, %total_units
  %block.first_unit = udiv i64 %block.share, %blocks.used
  %starts.later = icmp sgt i64 %first_unit, %block.first_unit
  %slot.odd = zext i1 %starts.later to i64
  %slot.even = shl i64 %piece.block, 1
  %slot = add i64 %slot.even, %slot.odd
  %partials.field = getelementptr i8, ptr %args, i64 160
  %partials = load ptr, ptr %partials.field, align 8
  %partial_o_offset.field = getelementptr i8, ptr %args, i64 512
  %partial_o_offset = load i64, ptr %partial_o_offset.field, align 8
  %slot.rows = mul i64 %slot, 2
  %partial.row = add i64 %slot.rows, %row
  %o.offset = mul i64 %partial.row, 16
  %o.from_start = add i64 %partial_o_offset, %o.offset
  %statistics = getelementptr float, ptr %partials, i64 %partial.row
  %partial.o = getelementptr float, ptr %partials, i64 %o.from_start
  %exponent = load float, ptr %statistics, align 4
  %largest.filled = fcmp ogt float %exponent, 0xFFF0000000000000
  br i1 %largest.filled, label %largest.partial.then, label %largest.partial.end

largest.partial.then:
  %largest.sum = load float, ptr %largest.kept, align 4
  %larger = fcmp ogt float %exponent, %largest.sum
  %largest.next = select i1 %larger, float %exponent, float %largest.sum
  store float %largest.next, ptr %largest.kept, align 4
  br label %largest.partial.end

largest.partial.end:
  %largest.next.1 = add i64 %largest, 1
  br label %largest.head

largest.done:
  %largest.result = load float, ptr %largest.kept, align 4
  store float 0.0, ptr %total.kept, align 4
  br label %total.1.head

total.1.head:
  %total.1 = phi i64 [ 0, %largest.done ], [ %total.1.next, %total.partial.end ]
  %total.1.more = icmp slt i64 %total.1, %pieces
  br i1 %total.1.more, label %total.1.body, label %total.1.done

total.1.body:
  %blocks.i32.field.1 = getelementptr i8, ptr %args, i64 568
  %blocks.i32.1 = load i32, ptr %blocks.i32.field.1, align 4
  %blocks.1 = sext i32 %blocks.i32.1 to i64
  %smaller.2 = icmp slt i64 %blocks.1, %total_units
  %blocks.used.1 = select i1 %smaller.2, i64 %blocks.1, i64 %total_units
  %unit.past.1 = add i64 %first_unit, 1
  %unit.share.1 = mul i64 %unit.past.1, %blocks.used.1
  %unit.share.last.1 = sub i64 %unit.share.1, 1
  %unit.block.1 = udiv i64 %unit.share.last.1, %total_units
  %piece.block.1 = add i64 %unit.block.1, %total.1
  %block.share.1 = mul i64 %piece.block.1, %total_units
  %block.first_unit.1 = udiv i64 %block.share.1, %blocks.used.1
  %starts.later.1 = icmp sgt i64 %first_unit, %block.first_unit.1
  %slot.odd.1 = zext i1 %starts.later.1 to i64
  %slot.even.1 = shl i64 %piece.block.1, 1
  %slot.1 = add i64 %slot.even.1, %slot.odd.1
  %partials.field.1 = getelementptr i8, ptr %args, i64 160
  %partials.1 = load ptr, ptr %partials.field.1, align 8
  %partial_o_offset.field.1 = getelementptr i8, ptr %args, i64 512
  %partial_o_offset.1 = load i64, ptr %partial_o_offset.field.1, align 8
  %slot.rows.1 = mul i64 %slot.1, 2
  %partial.row.1 = add i64 %slot.rows.1, %row
  %o.offset.1 = mul i64 %partial.row.1, 16
  %o.from_start.1 = add i64 %partial_o_offset.1, %o.offset.1
  %statistics.1 = getelementptr float, ptr %partials.1, i64 %partial.row.1
  %partial.o.1 = getelementptr float, ptr %partials.1, i64 %o.from_start.1
  %exponent.1 = load float, ptr %statistics.1, align 4
  %total.filled = fcmp ogt float %exponent.1, 0xFFF0000000000000
  br i1 %total.filled, label %total.partial.then, label %total.partial.end

total.partial.then:
  %total.sum = load float, ptr %total.kept, align 4
  %exponent.less = fsub float %exponent.1, %largest.result
  %larger.1 = fcmp ogt float %exponent.less, -126.0
  %exponent.clamped = select i1 %larger.1, float %exponent.less, float -126.0
  %rounding = fadd float %exponent.clamped, 0x4168000000000000
  %whole.bits = bitcast float %rounding to i32
  %whole = fsub float %rounding, 0x4168000000000000
  %fraction = fsub float %exponent.clamped, %whole
  %poly = call float @llvm.fmuladd.f32(float 0x3F244138A0000000, float %fraction, float 0x3F55F08900000000)
  %poly.1 = call float @llvm.fmuladd.f32(float %poly, float %fraction, float 0x3F83B2A540000000)
  %poly.2 = call float @llvm.fmuladd.f32(float %poly.1, float %fraction, float 0x3FAC6AF6C0000000)
  %poly.3 = call float @llvm.fmuladd.f32(float %poly.2, float %fraction, float 0x3FCEBFBE00000000)
  %poly.4 = call float @llvm.fmuladd.f32(float %poly.3, float %fraction, float 0x3FE62E4300000000)
  %mantissa = call float @llvm.fmuladd.f32(float %poly.4, float %fraction, float 1.0)
  %exponent.2 = shl i32 %whole.bits, 23
  %mantissa.bits = bitcast float %mantissa to i32
  %power.bits = add i32 %mantissa.bits, %exponent.2
  %power = bitcast i32 %power.bits to float
  %underflows = fcmp olt float %exponent.less, -126.0
  %power.or.zero = select i1 %underflows, float 0.0, float %power
  %total.next = fadd float %total.sum, %power.or.zero
  store float %total.next, ptr %total.kept, align 4
  br label %total.partial.end

total.partial.end:
  %total.1.next = add i64 %total.1, 1
  br label %total.1.head

total.1.done:
  %total.result = load float, ptr %total.kept, align 4
  ; o = sum of (weight / total) * o of each partial
  %row.is_empty = fcmp oeq float %largest.result, 0xFFF0000000000000
  %o.start = select i1 %row.is_empty, float 0.0, float -0.0
  br label %dim.head

dim.head:
  %dim = phi i64 [ 0, %total.1.done ], [ %dim.next, %dim.body ]
  %dim.more = icmp slt i64 %dim, 16
  br i1 %dim.more, label %dim.body, label %dim.done

dim.body:
  %o.start.at = getelementptr float, ptr %o, i64 %dim
  %o.start.first = insertelement <4 x float> poison, float %o.start, i64 0
  %o.start.splat = shufflevector <4 x float> %o.start.first, <4 x float> poison, <4 x i32> zeroinitializer
  store <4 x float> %o.start.splat, ptr %o.start.at, align 4
  %dim.next = add i64 %dim, 4
  br label %dim.head

dim.done:
  store float 0.0, ptr %join.kept, align 4
  br label %join.head

join.head:
  %join = phi i64 [ 0, %dim.done ], [ %join.next, %join.partial.end ]
  %join.more = icmp slt i64 %join, %pieces
  br i1 %join.more, label %join.body, label %join.done

join.body:
  %blocks.i32.field.2 = getelementptr i8, ptr %args, i64 568
  %blocks.i32.2 = load i32, ptr %blocks.i32.field.2, align 4
  %blocks.2 = sext i32 %blocks.i32.2 to i64
  %smaller.3 = icmp slt i64 %blocks.2, %total_units
  %blocks.used.2 = select i1 %smaller.3, i64 %blocks.2, i64 %total_units
  %unit.past.2 = add i64 %first_unit, 1
  %unit.share.2 = mul i64 %unit.past.2, %blocks.used.2
  %unit.share.last.2 = sub i64 %unit.share.2, 1
  %unit.block.2 = udiv i64 %unit.share.last.2, %total_units
  %piece.block.2 = add i64 %unit.block.2, %join
  %block.share.2 = mul i64 %piece.block.2, %total_units
  %block.first_unit.2 = udiv i64 %block.share.2, %blocks.used.2
  %starts.later.2 = icmp sgt i64 %first_unit, %block.first_unit.2
  %slot.odd.2 = zext i1 %starts.later.2 to i64
  %slot.even.2 = shl i64 %piece.block.2, 1
  %slot.2 = add i64 %slot.even.2, %slot.odd.2
  %partials.field.2 = getelementptr i8, ptr %args, i64 160
  %partials.2 = load ptr, ptr %partials.field.2, align 8
  %partial_o_offset.field.2 = getelementptr i8, ptr %args, i64 512
  %partial_o_offset.2 = load i64, ptr %partial_o_offset.field.2, align 8
  %slot.rows.2 = mul i64 %slot.2, 2
  %partial.row.2 = add i64 %slot.rows.2, %row
  %o.offset.2 = mul i64 %partial.row.2, 16
  %o.from_start.2 = add i64 %partial_o_offset.2, %o.offset.2
  %statistics.2 = getelementptr float, ptr %partials.2, i64 %partial.row.2
  %partial.o.2 = getelementptr float, ptr %partials.2, i64 %o.from_start.2
  %exponent.3 = load float, ptr %statistics.2, align 4
  %join.filled = fcmp ogt float %exponent.3, 0xFFF0000000000000
  br i1 %join.filled, label %join.partial.then, label %join.partial.end

join.partial.then:
  %join.sum = load float, ptr %join.kept, align 4
  %exponent.less.1 = fsub float %exponent.3, %largest.result
  %larger.2 = fcmp ogt float %exponent.less.1, -126.0
  %exponent.clamped.1 = select i1 %larger.2, float %exponent.less.1, float -126.0
  %rounding.1 = fadd float %exponent.clamped.1, 0x4168000000000000
  %whole.bits.1 = bitcast float %rounding.1 to i32
  %whole.1 = fsub float %rounding.1, 0x4168000000000000
  %fraction.1 = fsub float %exponent.clamped.1, %whole.1
  %poly.5 = call float @llvm.fmuladd.f32(float 0x3F244138A0000000, float %fraction.1, float 0x3F55F08900000000)
  %poly.6 = call float @llvm.fmuladd.f32(float %poly.5, float %fraction.1, float 0x3F83B2A540000000)
  %poly.7 = call float @llvm.fmuladd.f32(float %poly.6, float %fraction.1, float 0x3FAC6AF6C0000000)
  %poly.8 = call float @llvm.fmuladd.f32(float %poly.7, float %fraction.1, float 0x3FCEBFBE00000000)
  %poly.9 = call float @llvm.fmuladd.f32(float %poly.8, float %fraction.1, float 0x3FE62E4300000000)
  %mantissa.1 = call float @llvm.fmuladd.f32(float %poly.9, float %fraction.1, float 1.0)
  %exponent.4 = shl i32 %whole.bits.1, 23
  %mantissa.bits.1 = bitcast float %mantissa.1 to i32
  %power.bits.1 = add i32 %mantissa.bits.1, %exponent.4
  %power.1 = bitcast i32 %power.bits.1 to float
  %underflows.1 = fcmp olt float %exponent.less.1, -126.0
  %power.or.zero.1 = select i1 %underflows.1, float 0.0, float %power.1
  %share = fdiv float %power.or.zero.1, %total.result
  br label %dim.1.head

dim.1.head:
  %dim.1 = phi i64 [ 0, %join.partial.then ], [ %dim.1.next, %dim.1.body ]
  %dim.1.more = icmp slt i64 %dim.1, 16
  br i1 %dim.1.more, label %dim.1.body, label %dim.1.done

dim.1.body:
  %o.at = getelementptr float, ptr %o, i64 %dim.1
  %partial.o.at = getelementptr float, ptr %partial.o.2, i64 %dim.1
  %o.partial = load <4 x float>, ptr %partial.o.at, align 4
  %o.sum = load <4 x float>, ptr %o.at, align 4
  %share.first = insertelement <4 x float> poison, float %share, i64 0
  %share.splat = shufflevector <4 x float> %share.first, <4 x float> poison, <4 x i32> zeroinitializer
  %o.next = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %share.splat, <4 x float> %o.partial, <4 x float> %o.sum)
  store <4 x float> %o.next, ptr %o.at, align 4
  %dim.1.next = add i64 %dim.1, 4
  br label %dim.1.head

dim.1.done:
  store float %join.sum, ptr %join.kept, align 4
  br label %join.partial.end

join.partial.end:
  %join.next = add i64 %join, 1
  br label %join.head

join.done:
  %join.result = load float, ptr %join.kept, align 4
  ; the finished row, to out and lse
  %rows.before.1 = mul i64 %row_block, 2
  %group.row = add i64 %rows.before.1, %row
  %head.first = mul i64 %kv_head, 2
  %q_head = add i64 %head.first, %group.row
  %out.stride_batch.field = getelementptr i8, ptr %args, i64 400
  %out.stride_batch = load i64, ptr %out.stride_batch.field, align 8
  %out.batch = mul i64 %batch_index, %out.stride_batch
  %out.stride_query.field = getelementptr i8, ptr %args, i64 408
  %out.stride_query = load i64, ptr %out.stride_query.field, align 8
  %out.query = mul i64 %first_token, %out.stride_query
  %out.stride_head.field = getelementptr i8, ptr %args, i64 416
  %out.stride_head = load i64, ptr %out.stride_head.field, align 8
  %out.head = mul i64 %q_head, %out.stride_head
  %out.before = add i64 %out.batch, %out.query
  %out.offset = add i64 %out.before, %out.head
  %out.field = getelementptr i8, ptr %args, i64 32
  %out = load ptr, ptr %out.field, align 8
  %out.bytes = mul i64 %out.offset, 4
  %out.row = getelementptr i8, ptr %out, i64 %out.bytes
  br label %dim.2.head

dim.2.head:
  %dim.2 = phi i64 [ 0, %join.done ], [ %dim.2.next, %dim.2.body ]
  %dim.2.more = icmp slt i64 %dim.2, 16
  br i1 %dim.2.more, label %dim.2.body, label %dim.2.done

dim.2.body:
  %o.at.1 = getelementptr float, ptr %o, i64 %dim.2
  %o.value = load <4 x float>, ptr %o.at.1, align 4
  %dim.bytes = mul i64 %dim.2, 4
  %out.at = getelementptr i8, ptr %out.row, i64 %dim.bytes
  store <4 x float> %o.value, ptr %out.at, align 4
  %dim.2.next = add i64 %dim.2, 4
  br label %dim.2.head

dim.2.done:
  %lse.stride_batch.field = getelementptr i8, ptr %args, i64 424
  %lse.stride_batch = load i64, ptr %lse.stride_batch.field, align 8
  %lse.batch = mul i64 %batch_index, %lse.stride_batch
  %lse.stride_query.field = getelementptr i8, ptr %args, i64 432
  %lse.stride_query = load i64, ptr %lse.stride_query.field, align 8
  %lse.query = mul i64 %first_token, %lse.stride_query
  %lse.stride_head.field = getelementptr i8, ptr %args, i64 440
  %lse.stride_head = load i64, ptr %lse.stride_head.field, align 8
  %lse.head = mul i64 %q_head, %lse.stride_head
  %lse.before = add i64 %lse.batch, %lse.query
  %lse.offset = add i64 %lse.before, %lse.head
  %tiny = fcmp olt float %total.result, 0x3810000000000000
  %lifted = fmul float %total.result, 0x4160000000000000
  %normal = select i1 %tiny, float %lifted, float %total.result
  %lift = select i1 %tiny, i32 23, i32 0
  %bits = bitcast float %normal to i32
  %from.root = sub i32 %bits, 1060439283
  %powers = ashr i32 %from.root, 23
  %powers.bits = shl i32 %powers, 23
  %m.bits = sub i32 %bits, %powers.bits
  %m = bitcast i32 %m.bits to float
  %m.more = fadd float %m, 1.0
  %m.less = fsub float %m, 1.0
  %s = fdiv float %m.less, %m.more
  %s.square = fmul float %s, %s
  %s.twice = fadd float %s, %s
  %poly.10 = call float @llvm.fmuladd.f32(float 0x3FC2EF5160000000, float %s.square, float 0x3FC997BDC0000000)
  %poly.11 = call float @llvm.fmuladd.f32(float %poly.10, float %s.square, float 0x3FD55555C0000000)
  %tail = fmul float %poly.11, %s.square
  %tail.1 = fmul float %tail, %s.twice
  %exponent.5 = sub i32 %powers, %lift
  %exponent.value = sitofp i32 %exponent.5 to float
  %log.m = fadd float %s.twice, %tail.1
  %log2 = call float @llvm.fmuladd.f32(float %log.m, float 0x3FF7154760000000, float %exponent.value)
  %is.inf = fcmp oeq float %total.result, 0x7FF0000000000000
  %log.or.inf = select i1 %is.inf, float 0x7FF0000000000000, float %log2
  %is.zero = fcmp oeq float %total.result, 0.0
  %log.or.minus.inf = select i1 %is.zero, float 0xFFF0000000000000, float %log.or.inf
  %is.valid = fcmp oge float %total.result, 0.0
  %log.checked = select i1 %is.valid, float %log.or.minus.inf, float 0x7FF8000000000000
  %log2_sum = fadd float %largest.result, %log.checked
  %lse.natural = fmul float %log2_sum, 0x3FE62E4300000000
  %lse.field = getelementptr i8, ptr %args, i64 40
  %lse = load ptr, ptr %lse.field, align 8
  %lse.at = getelementptr float, ptr %lse, i64 %lse.offset
  store float %lse.natural, ptr %lse.at, align 4
  %row.next = add i64 %row, 1
  br label %row.head

row.done:
  ret void
}

define internal void @clear_tokens(ptr noalias readonly %args, i64 %block, i64 %blocks) #0 {
entry:
  %q_offset.field = getelementptr i8, ptr %args, i64 72
  %q_offset = load ptr, ptr %q_offset.field, align 8
  %batch.i32.field = getelementptr i8, ptr %args, i64 560
  %batch.i32 = load i32, ptr %batch.i32.field, align 4
  %batch = sext i32 %batch.i32 to i64
  %offsets = add i64 %batch, 1
  br label %entry.1.head

entry.1.head:
  %entry.1 = phi i64 [ 0, %entry ], [ %entry.1.next, %entry.1.body ]
  %last = phi i64 [ 0, %entry ], [ %last.next, %entry.1.body ]
  %entry.1.more = icmp slt i64 %entry.1, %offsets
  br i1 %entry.1.more, label %entry.1.body, label %entry.1.done

entry.1.body:
  %offset.at = getelementptr i32, ptr %q_offset, i64 %entry.1
  %offset.i32 = load i32, ptr %offset.at, align 4
  %offset = sext i32 %offset.i32 to i64
  %offset.is_known = icmp sge i64 %offset, 0
  %last.next = select i1 %offset.is_known, i64 %offset, i64 %last
  %entry.1.next = add i64 %entry.1, 1
  br label %entry.1.head

entry.1.done:
  %query_rows.field = getelementptr i8, ptr %args, i64 536
  %query_rows = load i64, ptr %query_rows.field, align 8
  %tokens.beyond = sub i64 %query_rows, %last
  %rows.beyond = mul i64 %tokens.beyond, 2
  %out.field = getelementptr i8, ptr %args, i64 32
  %out = load ptr, ptr %out.field, align 8
  br label %beyond.head

beyond.head:
  %beyond = phi i64 [ %block, %entry.1.done ], [ %beyond.next, %dim.done ]
  %beyond.more = icmp slt i64 %beyond, %rows.beyond
  br i1 %beyond.more, label %beyond.body, label %beyond.done

beyond.body:
  %token.past = udiv i64 %beyond, 2
  %token = add i64 %last, %token.past
  %head = urem i64 %beyond, 2
  %out.stride_query.field = getelementptr i8, ptr %args, i64 408
  %out.stride_query = load i64, ptr %out.stride_query.field, align 8
  %out.stride_head.field = getelementptr i8, ptr %args, i64 416
  %out.stride_head = load i64, ptr %out.stride_head.field, align 8
  %out.head = mul i64 %head, %out.stride_head
  %out.token = mul i64 %token, %out.stride_query
  %out.offset = add i64 %out.token, %out.head
  %out.bytes = mul i64 %out.offset, 4
  %out.row = getelementptr i8, ptr %out, i64 %out.bytes
  br label %dim.head

dim.head:
  %dim = phi i64 [ 0, %beyond.body ], [ %dim.next, %dim.body ]
  %dim.more = icmp slt i64 %dim, 16
  br i1 %dim.more, label %dim.body, label %dim.done

dim.body:
  %dim.bytes = mul i64 %dim, 4
  %out.at = getelementptr i8, ptr %out.row, i64 %dim.bytes
  store <4 x float> splat (float 0.0), ptr %out.at, align 4
  %dim.next = add i64 %dim, 4
  br label %dim.head

dim.done:
  %lse.stride_query.field = getelementptr i8, ptr %args, i64 432
  %lse.stride_query = load i64, ptr %lse.stride_query.field, align 8
  %lse.stride_head.field = getelementptr i8, ptr %args, i64 440
  %lse.stride_head = load i64, ptr %lse.stride_head.field, align 8
  %lse.head = mul i64 %head, %lse.stride_head
  %lse.token = mul i64 %token, %lse.stride_query
  %lse.offset = add i64 %lse.token, %lse.head
  %lse.field = getelementptr i8, ptr %args, i64 40
  %lse = load ptr, ptr %lse.field, align 8
  %lse.at = getelementptr float, ptr %lse, i64 %lse.offset
  store float 0xFFF0000000000000, ptr %lse.at, align 4
  %beyond.next = add i64 %beyond, %blocks
  br label %beyond.head

beyond.done:
  ret void
}

declare <4 x double> @llvm.copysign.v4f64(<4 x double>, <4 x double>)
declare <4 x double> @llvm.fabs.v4f64(<4 x double>)
declare <4 x double> @llvm.fmuladd.v4f64(<4 x double>, <4 x double>, <4 x double>)
declare <4 x float> @llvm.fmuladd.v4f32(<4 x float>, <4 x float>, <4 x float>)
declare float @llvm.fmuladd.f32(float, float, float)
declare float @llvm.vector.reduce.fadd.v4f32(float, <4 x float>)

attributes #0 = { nounwind "prefer-vector-width"="128" "min-legal-vector-width"="128" }
