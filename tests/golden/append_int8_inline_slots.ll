; append new=bf16 places=slots heads=1 k=int8 k_dim=20 k_scale=inline v_in_k=on page=16 align=4 | cpu:x86-64-v3

define internal void @report_fault(ptr noalias readonly %args, i32 %code, i64 %row, i64 %slot, i64 %value) #0 {
entry:
  %errors.field = getelementptr i8, ptr %args, i64 120
  %errors = load ptr, ptr %errors.field, align 8
  %errors.none = icmp eq ptr %errors, null
  br i1 %errors.none, label %unrecorded.then, label %unrecorded.else

unrecorded.then:
  br label %unrecorded.end

unrecorded.else:
  %claimed = getelementptr i8, ptr %errors, i64 12
  %is_first.pair = cmpxchg ptr %claimed, i32 0, i32 1 acq_rel monotonic, align 4
  %is_first = extractvalue { i32, i1 } %is_first.pair, 1
  br i1 %is_first, label %record.then, label %record.end

record.then:
  %record.row = getelementptr i8, ptr %errors, i64 4
  %record.row.i32 = trunc i64 %row to i32
  store i32 %record.row.i32, ptr %record.row, align 4
  %record.slot = getelementptr i8, ptr %errors, i64 8
  %record.slot.i32 = trunc i64 %slot to i32
  store i32 %record.slot.i32, ptr %record.slot, align 4
  %record.value = getelementptr i8, ptr %errors, i64 16
  store i64 %value, ptr %record.value, align 8
  ; the code last: who sees it sees the rest
  store atomic i32 %code, ptr %errors release, align 4
  br label %record.end

record.end:
  br label %unrecorded.end

unrecorded.end:
  ret void
}

define internal void @place_k(ptr noalias readonly %args, i64 %token, ptr noalias %where) #0 {
entry:
  %place.to = getelementptr i64, ptr %where, i64 2
  store i64 0, ptr %place.to, align 8
  %slots.field = getelementptr i8, ptr %args, i64 48
  %slots = load ptr, ptr %slots.field, align 8
  %slot.at = getelementptr i64, ptr %slots, i64 %token
  %slot = load i64, ptr %slot.at, align 8
  %slot.is_given = icmp sge i64 %slot, 0
  br i1 %slot.is_given, label %given.then, label %given.end

given.then:
  %slot.token = urem i64 %slot, 16
  %slot.block = udiv i64 %slot, 16
  store i64 %slot.block, ptr %where, align 8
  %place.to.1 = getelementptr i64, ptr %where, i64 1
  store i64 %slot.token, ptr %place.to.1, align 8
  %place.to.2 = getelementptr i64, ptr %where, i64 2
  store i64 1, ptr %place.to.2, align 8
  br label %given.end

given.end:
  ret void
}

define void @splitkv_append_slots_bf16_int8_h1_d20(ptr noalias readonly %args, i64 %first_token, i64 %end_token) #0 {
entry:
  %where = alloca [4 x i64], align 8
  %k.largest = alloca [1 x <8 x float>], align 64
  %k.missing = alloca [1 x <8 x float>], align 64
  %row.kept.to = getelementptr i64, ptr %where, i64 3
  store i64 0, ptr %row.kept.to, align 8
  %count.field = getelementptr i8, ptr %args, i64 112
  %count = load ptr, ptr %count.field, align 8
  %count.none = icmp eq ptr %count, null
  br i1 %count.none, label %end.choice.then, label %end.choice.else

end.choice.then:
  br label %end.choice.end

end.choice.else:
  %tokens.i32 = load i32, ptr %count, align 4
  %tokens = sext i32 %tokens.i32 to i64
  %smaller = icmp slt i64 %end_token, %tokens
  %held = select i1 %smaller, i64 %end_token, i64 %tokens
  br label %end.choice.end

end.choice.end:
  %end = phi i64 [ %end_token, %end.choice.then ], [ %held, %end.choice.else ]
  br label %token.head

token.head:
  %token = phi i64 [ %first_token, %end.choice.end ], [ %token.next, %k.rows.end ]
  %token.more = icmp slt i64 %token, %end
  br i1 %token.more, label %token.body, label %token.done

token.body:
  call void @place_k(ptr %args, i64 %token, ptr %where)
  %place.at = getelementptr i64, ptr %where, i64 2
  %exists = load i64, ptr %place.at, align 8
  %is.placed = icmp ne i64 %exists, 0
  br i1 %is.placed, label %k.rows.then, label %k.rows.end

k.rows.then:
  %block = load i64, ptr %where, align 8
  %place.at.1 = getelementptr i64, ptr %where, i64 1
  %place = load i64, ptr %place.at.1, align 8
  br label %k.head.head

k.head.head:
  %k.head = phi i64 [ 0, %k.rows.then ], [ %k.head.next, %dim.1.done ]
  %k.head.more = icmp slt i64 %k.head, 1
  br i1 %k.head.more, label %k.head.body, label %k.head.done

k.head.body:
  ; one row of k
  %k.new.head.stride.field = getelementptr i8, ptr %args, i64 136
  %k.new.head.stride = load i64, ptr %k.new.head.stride.field, align 8
  %k.new.head.offset = mul i64 %k.head, %k.new.head.stride
  %k.new.token.stride.field = getelementptr i8, ptr %args, i64 128
  %k.new.token.stride = load i64, ptr %k.new.token.stride.field, align 8
  %k.new.token.offset = mul i64 %token, %k.new.token.stride
  %k.new.elements = add i64 %k.new.token.offset, %k.new.head.offset
  %k.new.bytes = mul i64 %k.new.elements, 2
  %k.new.all = load ptr, ptr %args, align 8
  %k.new.row = getelementptr i8, ptr %k.new.all, i64 %k.new.bytes
  %k.block.stride.field = getelementptr i8, ptr %args, i64 160
  %k.block.stride = load i64, ptr %k.block.stride.field, align 8
  %k.block.offset = mul i64 %block, %k.block.stride
  %k.head.stride.field = getelementptr i8, ptr %args, i64 168
  %k.head.stride = load i64, ptr %k.head.stride.field, align 8
  %k.head.offset = mul i64 %k.head, %k.head.stride
  %k.token.stride.field = getelementptr i8, ptr %args, i64 176
  %k.token.stride = load i64, ptr %k.token.stride.field, align 8
  %k.token.offset = mul i64 %place, %k.token.stride
  %k.before = add i64 %k.block.offset, %k.head.offset
  %k.elements = add i64 %k.before, %k.token.offset
  %k.all.field = getelementptr i8, ptr %args, i64 16
  %k.all = load ptr, ptr %k.all.field, align 8
  %k.row = getelementptr i8, ptr %k.all, i64 %k.elements
  ; the row's scale: infinities and NaN are left out
  store <8 x float> splat (float 0.0), ptr %k.largest, align 64
  store <8 x float> splat (float 0.0), ptr %k.missing, align 64
  br label %dim.head

dim.head:
  %dim = phi i64 [ 0, %k.head.body ], [ %dim.next, %dim.body ]
  %dim.more = icmp slt i64 %dim, 16
  br i1 %dim.more, label %dim.body, label %dim.done

dim.body:
  %new.bytes = mul i64 %dim, 2
  %new.at = getelementptr i8, ptr %k.new.row, i64 %new.bytes
  %new.raw = load <8 x i16>, ptr %new.at, align 2
  %bits.wide = zext <8 x i16> %new.raw to <8 x i32>
  %bits.upper = shl <8 x i32> %bits.wide, splat (i32 16)
  %new = bitcast <8 x i32> %bits.upper to <8 x float>
  %size = call <8 x float> @llvm.fabs.v8f32(<8 x float> %new)
  %is.finite = fcmp ole <8 x float> %size, splat (float 0x47EFFFFFE0000000)
  %size.kept = select <8 x i1> %is.finite, <8 x float> %size, <8 x float> splat (float 0.0)
  %so_far = load <8 x float>, ptr %k.largest, align 64
  %larger = fcmp ogt <8 x float> %size.kept, %so_far
  %so_far.next = select <8 x i1> %larger, <8 x float> %size.kept, <8 x float> %so_far
  store <8 x float> %so_far.next, ptr %k.largest, align 64
  %is.nan = fcmp une <8 x float> %new, %new
  %nan.counted = select <8 x i1> %is.nan, <8 x float> splat (float 1.0), <8 x float> splat (float 0.0)
  %so_far.1 = load <8 x float>, ptr %k.missing, align 64
  %larger.1 = fcmp ogt <8 x float> %nan.counted, %so_far.1
  %so_far.next.1 = select <8 x i1> %larger.1, <8 x float> %nan.counted, <8 x float> %so_far.1
  store <8 x float> %so_far.next.1, ptr %k.missing, align 64
  %dim.next = add i64 %dim, 8
  br label %dim.head

dim.done:
  %new.bytes.1 = mul i64 16, 2
  %new.at.1 = getelementptr i8, ptr %k.new.row, i64 %new.bytes.1
  %new.raw.1 = load <4 x i16>, ptr %new.at.1, align 2
  %bits.wide.1 = zext <4 x i16> %new.raw.1 to <4 x i32>
  %bits.upper.1 = shl <4 x i32> %bits.wide.1, splat (i32 16)
  %new.1 = bitcast <4 x i32> %bits.upper.1 to <4 x float>
  %size.1 = call <4 x float> @llvm.fabs.v4f32(<4 x float> %new.1)
  %is.finite.1 = fcmp ole <4 x float> %size.1, splat (float 0x47EFFFFFE0000000)
  %size.kept.1 = select <4 x i1> %is.finite.1, <4 x float> %size.1, <4 x float> splat (float 0.0)
  %so_far.2 = load <8 x float>, ptr %k.largest, align 64
  %more = shufflevector <4 x float> %size.kept.1, <4 x float> zeroinitializer, <8 x i32> <i32 0, i32 1, i32 2, i32 3, i32 4, i32 4, i32 4, i32 4>
  %larger.2 = fcmp ogt <8 x float> %more, %so_far.2
  %so_far.next.2 = select <8 x i1> %larger.2, <8 x float> %more, <8 x float> %so_far.2
  store <8 x float> %so_far.next.2, ptr %k.largest, align 64
  %is.nan.1 = fcmp une <4 x float> %new.1, %new.1
  %nan.counted.1 = select <4 x i1> %is.nan.1, <4 x float> splat (float 1.0), <4 x float> splat (float 0.0)
  %so_far.3 = load <8 x float>, ptr %k.missing, align 64
  %more.1 = shufflevector <4 x float> %nan.counted.1, <4 x float> zeroinitializer, <8 x i32> <i32 0, i32 1, i32 2, i32 3, i32 4, i32 4, i32 4, i32 4>
  %larger.3 = fcmp ogt <8 x float> %more.1, %so_far.3
  %so_far.next.3 = select <8 x i1> %larger.3, <8 x float> %more.1, <8 x float> %so_far.3
  store <8 x float> %so_far.next.3, ptr %k.missing, align 64
  %largest.lanes = load <8 x float>, ptr %k.largest, align 64
  %largest.upper = shufflevector <8 x float> %largest.lanes, <8 x float> poison, <8 x i32> <i32 4, i32 5, i32 6, i32 7, i32 poison, i32 poison, i32 poison, i32 poison>
  %larger.4 = fcmp ogt <8 x float> %largest.lanes, %largest.upper
  %largest.lanes.1 = select <8 x i1> %larger.4, <8 x float> %largest.lanes, <8 x float> %largest.upper
  %largest.upper.1 = shufflevector <8 x float> %largest.lanes.1, <8 x float> poison, <8 x i32> <i32 2, i32 3, i32 poison, i32 poison, i32 poison, i32 poison, i32 poison, i32 poison>
  %larger.5 = fcmp ogt <8 x float> %largest.lanes.1, %largest.upper.1
  %largest.lanes.2 = select <8 x i1> %larger.5, <8 x float> %largest.lanes.1, <8 x float> %largest.upper.1
  %largest.upper.2 = shufflevector <8 x float> %largest.lanes.2, <8 x float> poison, <8 x i32> <i32 1, i32 poison, i32 poison, i32 poison, i32 poison, i32 poison, i32 poison, i32 poison>
  %larger.6 = fcmp ogt <8 x float> %largest.lanes.2, %largest.upper.2
  %largest.lanes.3 = select <8 x i1> %larger.6, <8 x float> %largest.lanes.2, <8 x float> %largest.upper.2
  %largest = extractelement <8 x float> %largest.lanes.3, i64 0
  %scale.exact = fdiv float %largest, 127.0
  %larger.7 = fcmp ogt float %scale.exact, 0x3810000000000000
  %scale.made = select i1 %larger.7, float %scale.exact, float 0x3810000000000000
  %row.is_zero = fcmp oeq float %largest, 0.0
  %scale.or.1 = select i1 %row.is_zero, float 1.0, float %scale.made
  %missing.lanes = load <8 x float>, ptr %k.missing, align 64
  %missing.upper = shufflevector <8 x float> %missing.lanes, <8 x float> poison, <8 x i32> <i32 4, i32 5, i32 6, i32 7, i32 poison, i32 poison, i32 poison, i32 poison>
  %larger.8 = fcmp ogt <8 x float> %missing.lanes, %missing.upper
  %missing.lanes.1 = select <8 x i1> %larger.8, <8 x float> %missing.lanes, <8 x float> %missing.upper
  %missing.upper.1 = shufflevector <8 x float> %missing.lanes.1, <8 x float> poison, <8 x i32> <i32 2, i32 3, i32 poison, i32 poison, i32 poison, i32 poison, i32 poison, i32 poison>
  %larger.9 = fcmp ogt <8 x float> %missing.lanes.1, %missing.upper.1
  %missing.lanes.2 = select <8 x i1> %larger.9, <8 x float> %missing.lanes.1, <8 x float> %missing.upper.1
  %missing.upper.2 = shufflevector <8 x float> %missing.lanes.2, <8 x float> poison, <8 x i32> <i32 1, i32 poison, i32 poison, i32 poison, i32 poison, i32 poison, i32 poison, i32 poison>
  %larger.10 = fcmp ogt <8 x float> %missing.lanes.2, %missing.upper.2
  %missing.lanes.3 = select <8 x i1> %larger.10, <8 x float> %missing.lanes.2, <8 x float> %missing.upper.2
  %missing = extractelement <8 x float> %missing.lanes.3, i64 0
  %row.has_nan = fcmp ogt float %missing, 0.0
  %scale.or.nan = select i1 %row.has_nan, float 0x7FF8000000000000, float %scale.or.1
  %k.scale.at = getelementptr i8, ptr %k.row, i64 20
  store float %scale.or.nan, ptr %k.scale.at, align 1
  br label %dim.1.head

dim.1.head:
  %dim.1 = phi i64 [ 0, %dim.done ], [ %dim.1.next, %dim.1.body ]
  %dim.1.more = icmp slt i64 %dim.1, 16
  br i1 %dim.1.more, label %dim.1.body, label %dim.1.done

dim.1.body:
  %new.bytes.2 = mul i64 %dim.1, 2
  %new.at.2 = getelementptr i8, ptr %k.new.row, i64 %new.bytes.2
  %new.raw.2 = load <8 x i16>, ptr %new.at.2, align 2
  %bits.wide.2 = zext <8 x i16> %new.raw.2 to <8 x i32>
  %bits.upper.2 = shl <8 x i32> %bits.wide.2, splat (i32 16)
  %new.2 = bitcast <8 x i32> %bits.upper.2 to <8 x float>
  %scale.or.nan.first = insertelement <8 x float> poison, float %scale.or.nan, i64 0
  %scale.or.nan.splat = shufflevector <8 x float> %scale.or.nan.first, <8 x float> poison, <8 x i32> zeroinitializer
  %quotient = fdiv <8 x float> %new.2, %scale.or.nan.splat
  %k.to = getelementptr i8, ptr %k.row, i64 %dim.1
  %larger.11 = fcmp ogt <8 x float> splat (float -128.0), %quotient
  %clamped.below = select <8 x i1> %larger.11, <8 x float> splat (float -128.0), <8 x float> %quotient
  %smaller.1 = fcmp olt <8 x float> splat (float 127.0), %clamped.below
  %clamped = select <8 x i1> %smaller.1, <8 x float> splat (float 127.0), <8 x float> %clamped.below
  %beside = fadd <8 x float> %clamped, splat (float 0x4168000000000000)
  %beside.bits = bitcast <8 x float> %beside to <8 x i32>
  %whole = sub <8 x i32> %beside.bits, splat (i32 1262485504)
  %is.nan.2 = fcmp une <8 x float> %clamped, %clamped
  %whole.or.0 = select <8 x i1> %is.nan.2, <8 x i32> splat (i32 0), <8 x i32> %whole
  %stored.bits = trunc <8 x i32> %whole.or.0 to <8 x i8>
  store <8 x i8> %stored.bits, ptr %k.to, align 1
  %dim.1.next = add i64 %dim.1, 8
  br label %dim.1.head

dim.1.done:
  %new.bytes.3 = mul i64 16, 2
  %new.at.3 = getelementptr i8, ptr %k.new.row, i64 %new.bytes.3
  %new.raw.3 = load <4 x i16>, ptr %new.at.3, align 2
  %bits.wide.3 = zext <4 x i16> %new.raw.3 to <4 x i32>
  %bits.upper.3 = shl <4 x i32> %bits.wide.3, splat (i32 16)
  %new.3 = bitcast <4 x i32> %bits.upper.3 to <4 x float>
  %scale.or.nan.first.1 = insertelement <4 x float> poison, float %scale.or.nan, i64 0
  %scale.or.nan.splat.1 = shufflevector <4 x float> %scale.or.nan.first.1, <4 x float> poison, <4 x i32> zeroinitializer
  %quotient.1 = fdiv <4 x float> %new.3, %scale.or.nan.splat.1
  %k.to.1 = getelementptr i8, ptr %k.row, i64 16
  %larger.12 = fcmp ogt <4 x float> splat (float -128.0), %quotient.1
  %clamped.below.1 = select <4 x i1> %larger.12, <4 x float> splat (float -128.0), <4 x float> %quotient.1
  %smaller.2 = fcmp olt <4 x float> splat (float 127.0), %clamped.below.1
  %clamped.1 = select <4 x i1> %smaller.2, <4 x float> splat (float 127.0), <4 x float> %clamped.below.1
  %beside.1 = fadd <4 x float> %clamped.1, splat (float 0x4168000000000000)
  %beside.bits.1 = bitcast <4 x float> %beside.1 to <4 x i32>
  %whole.1 = sub <4 x i32> %beside.bits.1, splat (i32 1262485504)
  %is.nan.3 = fcmp une <4 x float> %clamped.1, %clamped.1
  %whole.or.0.1 = select <4 x i1> %is.nan.3, <4 x i32> splat (i32 0), <4 x i32> %whole.1
  %stored.bits.1 = trunc <4 x i32> %whole.or.0.1 to <4 x i8>
  store <4 x i8> %stored.bits.1, ptr %k.to.1, align 1
  %k.head.next = add i64 %k.head, 1
  br label %k.head.head

k.head.done:
  br label %k.rows.end

k.rows.end:
  %token.next = add i64 %token, 1
  br label %token.head

token.done:
  ret void
}

declare <4 x float> @llvm.fabs.v4f32(<4 x float>)
declare <8 x float> @llvm.fabs.v8f32(<8 x float>)

attributes #0 = { nounwind "prefer-vector-width"="256" "min-legal-vector-width"="256" }
